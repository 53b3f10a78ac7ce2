"""The C++ side of a simulation: template files, and what specialises them to one block."""

from .generate import HARNESS_FILES, design_header, exports, record_layouts, wrapper

__all__ = ["HARNESS_FILES", "design_header", "exports", "record_layouts", "wrapper"]
