"""The one exception tree of gpulab: each error is a sentence for the person who reads it."""

from __future__ import annotations


class GpulabError(Exception):
    """Something went wrong; the message says what, where and what to do, in one line.

    Attributes:
        exit_status: what a command ends with when this error reaches it.
    """

    exit_status = 1


class InputError(GpulabError):
    """Somebody typed or wrote something that cannot be used; nothing was changed."""

    exit_status = 2


class NotPermittedError(GpulabError):
    """The caller may not do this; nothing was changed."""

    exit_status = 3


class UnsafeFileError(GpulabError):
    """A file is not what it should be (a link, a FIFO, too large) and was not opened for use."""
