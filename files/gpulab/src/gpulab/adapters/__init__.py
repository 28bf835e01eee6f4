"""The outside world: NVML, files, mail, accounts. Imports nothing above it."""
