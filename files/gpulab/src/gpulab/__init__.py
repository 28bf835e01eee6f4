"""Rules and commands of a shared GPU lab server."""

__version__ = "0.1.0"
