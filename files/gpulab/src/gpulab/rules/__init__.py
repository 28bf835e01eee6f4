"""Pure functions over frozen dataclasses: no clock, no files, no NVML."""
