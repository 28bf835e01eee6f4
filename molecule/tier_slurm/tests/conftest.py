"""Fixtures of this scenario: jobs are gone after each test."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from testinfra.host import Host


def until(question: Callable[[], object], seconds: float, what: str) -> None:
    """Ask again and again until the answer is yes."""
    deadline = time.monotonic() + seconds
    while not question():
        if time.monotonic() >= deadline:
            pytest.fail(f"not within {seconds:g} s: {what}")
        time.sleep(0.5)


@pytest.fixture(autouse=True)
def _no_jobs_left(host: Host) -> Iterator[None]:
    yield
    if host.run("command -v scancel").rc == 0:
        host.run("scancel --user=alice; scancel --user=bob; scancel --user=carol")
        until(lambda: not host.run("squeue --noheader --all").stdout.strip(), 90, "all jobs have ended")
