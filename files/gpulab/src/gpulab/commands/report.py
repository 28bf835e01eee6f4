"""`gpulab report`: who used the cards in a time, how well, how long people waited, and what to change."""

from __future__ import annotations

import argparse
import grp
import json
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import names
from ..adapters.callers import in_group
from ..adapters.clock import server_now
from ..adapters.files import write_atomic
from ..adapters.mail import MailError, send
from ..errors import GpulabError, NotPermittedError
from ..rules import usage_page, usage_text
from ..rules.usage_period import between, last, month
from ..rules.usage_words import LANGUAGES, dates
from ..services.report import Sources, describe, make, table
from ..settings import load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from ..rules.usage import Period
    from ..services.report import Report
    from ..settings import Settings

_MODE = 0o640
_DEFAULT = "14d"
_FORMATS = ("text", "html", "csv", "json")


def main(
    argv: Sequence[str],
    *,
    root: Path = Path("/"),
    now: Callable[[], datetime] = server_now,
    sources: Sources | None = None,
) -> int:
    """Make a report and print it, write it to a file, or mail it.

    Args:
        argv: arguments after the subcommand.
        root: the folder that stands for `/`.
        now: server time, naive.
        sources: where records come from.

    Raises:
        GpulabError: records cannot be read, or the report cannot be written or mailed.
        InputError: the time or a settings file cannot be understood.
    """
    options = _parser().parse_args(argv)
    settings, moment = load(root), now()
    period = _period(options, moment)
    try:
        report = make(period, settings, int(moment.timestamp()), sources or Sources(root), _progress())
    except PermissionError:
        raise NotPermittedError("only admins may read what everybody did; run it with sudo") from None
    if options.mail:
        _mail(report, settings, members=options.members, root=root)
        return 0
    language = options.language or _language(settings)
    document = describe(report, settings.lab.name, language, only=options.member)
    _put(options.output, _render(document, options.format, language))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpulab report",
        description="Show who used the cards in a time, how well, how long people waited, and what the numbers suggest "
        "to change. Reads the samples of the light tiers and Slurm's accounting, whichever there are.",
    )
    time = parser.add_mutually_exclusive_group()
    time.add_argument("--last", metavar="TIME", default="", help=f"up to now, such as 36h or 2w (default: {_DEFAULT})")
    time.add_argument("--month", metavar="MONTH", default="", help="such as 2026-11, or `last`")
    time.add_argument("--from", dest="begin", metavar="DAY", default="", help="such as 2026-11-01")
    parser.add_argument("--to", dest="end", metavar="DAY", default="", help="with --from: last day (default: today)")
    parser.add_argument("--format", choices=_FORMATS, default="text", help="text (default), html, csv or json")
    parser.add_argument("--language", choices=LANGUAGES, help="default: the lab's")
    parser.add_argument("--member", metavar="NAME", help="the version for this member: others have no names in it")
    parser.add_argument("--output", metavar="FILE", type=Path, help="write it there, for admins to read")
    parser.add_argument(
        "--mail",
        action="store_true",
        help=f"mail it to the admin, and leave the page in {names.REPORTS_DIR}",
    )
    parser.add_argument("--members", action="store_true", help="with --mail: mail each member their own version too")
    return parser


def _period(options: argparse.Namespace, now: datetime) -> Period:
    if options.month:
        return month(options.month, now)
    if options.begin:
        return between(options.begin, options.end, now)
    return last(options.last or _DEFAULT, now)


def _language(settings: Settings) -> str:
    return settings.lab.language if settings.lab.language in LANGUAGES else LANGUAGES[0]


def _render(document: dict[str, Any], form: str, language: str) -> str:
    if form == "html":
        return usage_page.render(document, language)
    if form == "csv":
        return table(document)
    if form == "json":
        return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    return usage_text.render(document, language)


def _put(path: Path | None, text: str) -> None:
    if path is None:
        sys.stdout.write(text)
        return
    try:
        write_atomic(path, text.encode(), mode=_MODE, gid=_admins())
    except OSError as error:
        raise GpulabError(f"{path} cannot be written: {error.strerror}") from error


def _admins() -> int | None:
    """Return the group of admins, when this account can give files to it."""
    if os.geteuid() != 0:
        return None
    try:
        return grp.getgrnam(names.ADMINS_GROUP).gr_gid
    except KeyError:
        return None


def _progress() -> Callable[[float], None]:
    """Return what shows how far a long report is: a line on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        return lambda _: None

    def show(done: float) -> None:
        sys.stderr.write(f"\rreading samples: {100 * min(1.0, done):3.0f} %" + ("\r\x1b[K" if done >= 1 else ""))
        sys.stderr.flush()

    return show


def _mail(report: Report, settings: Settings, *, members: bool, root: Path) -> None:
    """Mail the report; one mail that fails does not keep the others.

    Raises:
        GpulabError: the page cannot be written, or a mail was refused.
    """
    language = _language(settings)
    document = describe(report, settings.lab.name, language)
    folder = Path(names.under(root, names.REPORTS_DIR))
    page = folder / f"{dates(report.usage.period)['last']}.html"
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise GpulabError(f"{folder} cannot be made: {error.strerror}") from error
    _put(page, usage_page.render(document, language))
    mails = [(settings.lab.admin, f"{usage_text.render(document, language)}\n{page}\n")]
    if members:
        for each in report.usage.members:
            if in_group(each.user, names.MEMBERS_GROUP):
                own = describe(report, settings.lab.name, language, only=each.user)
                mails.append((each.user, usage_text.render(own, language)))
    failed = [why for recipient, text in mails if (why := _send(recipient, document["title"], text, root))]
    if failed:
        raise GpulabError("; ".join(failed))


def _send(recipient: str, subject: str, text: str, root: Path) -> str:
    """Send one mail; return why it was not sent, else nothing."""
    try:
        send(recipient, f"[gpulab {socket.gethostname().split('.')[0]}] {subject}", text, topic="report", root=root)
    except MailError as error:
        return str(error)
    return ""
