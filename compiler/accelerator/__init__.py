"""Operators on the complete accelerator: geometry, schedules, programs, and what they cost."""
