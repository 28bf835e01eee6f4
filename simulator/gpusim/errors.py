"""The one error a user of gpusim sees: a sentence that says what, where and what to do."""

from __future__ import annotations


class GpusimError(Exception):
    """Something cannot be done; nothing was changed. The command prints it and exits with status 1."""
