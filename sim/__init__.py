"""Builds, runs and measures the RTL that hw made."""
