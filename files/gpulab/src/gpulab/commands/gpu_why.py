"""`gpu-why`: members learn in words why a job waits, or has the priority it has."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from .. import names
from ..adapters.callers import caller
from ..adapters.clock import server_now
from ..errors import InputError
from ..rules.slurm_why import explain
from ..rules.slurm_why_words import EN, ZH
from ..services.slurm_why import find_jobs, scene_of
from .cli import guarded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EXAMPLES = """\
examples:
  gpu-why          all your jobs that wait or run
  gpu-why 4711     one job, anybody's
  gpu-why 4711_3   one task of an array

In Chinese where the locale is Chinese (LANG=zh_CN.UTF-8), else in English."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; `{self.prog} --help` shows how")


def language(environ: Mapping[str, str]) -> str:
    """Return `zh` or `en`, as the locale says (locale(7): the first of these that is set)."""
    chosen = next((environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(name)), "")
    return "zh" if chosen.startswith("zh") else "en"


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Explain.

    Raises:
        GpulabError: there is no such job, or Slurm does not answer.
    """
    parser = _Parser(
        prog="gpu-why",
        description="Say why a job waits, and what its priority is made of.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("job", nargs="?", default="", metavar="JOB", help="a job number; all your jobs when left out")
    options = parser.parse_args(argv)
    chosen = language(environ)
    words = ZH if chosen == "zh" else EN
    user = caller(environ)
    jobs = find_jobs(options.job, user)
    if not jobs and options.job:
        raise InputError(words["no such"].format(job=options.job))
    if not jobs:
        print(words["none"].format(user=user, examples=names.HANDBOOK_DIR / "examples"))
    for position, job in enumerate(jobs):
        if position:
            print()
        for line in explain(job, scene_of(job, server_now()), language=chosen):
            print(line)
    return 0


def run() -> None:
    """Entry point of the installed command."""
    sys.exit(guarded("gpu-why", main))
