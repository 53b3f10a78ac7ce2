"""Celosia explores accelerator hardware and software schedules together, with exact numbers."""

__version__ = "0.1.0"
