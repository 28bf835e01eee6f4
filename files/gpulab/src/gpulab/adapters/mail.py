"""Mail to the people of the lab, handed to the server's own MTA; what members wrote can never become a header.

The MTA decides where a name's mail ends up (mailbox, /etc/aliases, smarthost); role runtime sets it up.
"""

from __future__ import annotations

import re
import subprocess
from email.headerregistry import Address
from email.message import EmailMessage
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import GpulabError, UnsafeFileError
from .files import read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Runner = Callable[..., subprocess.CompletedProcess[bytes]]
    """Called like subprocess.run."""

SENDMAIL = "/usr/sbin/sendmail"
TIMEOUT_SECONDS = 60.0

_ACCOUNT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_TOPIC = re.compile(r"[a-z][a-z0-9-]*")
_DOMAIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_SUBJECT_LIMIT = 160
_MAILNAME_LIMIT = 4096
_LINE_LIMIT = 998
"""Longest line of a mail, bytes (RFC 5322, 2.1.1)."""


class MailError(GpulabError):
    """A mail was not accepted for delivery; the message says for whom and what the MTA said last."""


def send(
    recipient: str,
    subject: str,
    body: str,
    *,
    topic: str,
    root: Path = Path("/"),
    runner: Runner = subprocess.run,
) -> None:
    """Hand one mail to the MTA.

    Args:
        recipient: account name on this server, never an address.
        subject: becomes one printable line of at most 160 characters.
        body: plain text; control characters other than newline are taken out.
        topic: what the mail is about, such as `check-gpu`; mail programs can sort by it (List-Id).
        root: the folder that stands for `/` when /etc/mailname is read.
        runner: runs the MTA.

    Raises:
        MailError: the recipient is no account name, or the MTA is absent, too slow or refused the mail.
    """
    if not _ACCOUNT.fullmatch(recipient):
        raise MailError(f"mail to {recipient!r} was not sent: an account name of this server was expected")
    message = compose(recipient, subject, body, topic=topic, domain=_mailname(root))
    argv = [SENDMAIL, "-i", "-f", "root", "--", recipient]
    try:
        answer = runner(argv, input=message.as_bytes(), capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise MailError(f"mail to {recipient} was not sent: {SENDMAIL} took over {TIMEOUT_SECONDS:g} s") from error
    except OSError as error:
        raise MailError(f"mail to {recipient} was not sent: {SENDMAIL}: {error.strerror or error}") from error
    if answer.returncode != 0:
        said = (answer.stderr or answer.stdout or b"").decode(errors="replace").strip().split("\n")[-1]
        reason = _printable(said) or "it gave no reason"
        raise MailError(f"mail to {recipient} was not sent: {SENDMAIL} ended with {answer.returncode}: {reason}")


def compose(recipient: str, subject: str, body: str, *, topic: str, domain: str = "") -> EmailMessage:
    """Build the message; the MTA adds Date and Message-ID.

    Args:
        recipient: account name.
        subject: any text.
        body: any text.
        topic: lower-case word for List-Id.
        domain: the server's mail domain; empty when it has none, then addresses are bare account names.

    Returns:
        A UTF-8 message marked as made by a program (RFC 3834), so that vacation responders stay silent.
    """
    if not _TOPIC.fullmatch(topic):
        raise ValueError(f"topic is {topic!r}; a lower-case word was expected")
    message = EmailMessage()
    message["From"] = Address(display_name="gpulab", username="root", domain=domain)
    message["To"] = Address(username=recipient, domain=domain)
    message["Subject"] = _shortened(_printable(subject), _SUBJECT_LIMIT)
    message["Auto-Submitted"] = "auto-generated"
    # RFC 2919: a list without a domain of its own lives under localhost.
    message["List-Id"] = f"gpulab {topic} <{topic}.gpulab.{domain or 'localhost'}>"
    lines = [_spaced(line).rstrip() for line in body.split("\n")]
    message.set_content("\n".join(lines), cte=_encoding(lines))
    return message


def _encoding(lines: Sequence[str]) -> str | None:
    """Choose a transfer encoding that leaves the text readable where no mail program is: in /var/mail, with a pager."""
    if max(len(line.encode()) for line in lines) > _LINE_LIMIT:
        return None  # what the email package thinks best for long lines
    return "7bit" if all(line.isascii() for line in lines) else "8bit"


def _mailname(root: Path) -> str:
    """Return the server's mail domain as Debian keeps it in mailname(5); empty when there is none."""
    try:
        lines = read_regular(root / "etc" / "mailname", limit=_MAILNAME_LIMIT).decode(errors="replace").split()
    except (OSError, UnsafeFileError):
        return ""
    return lines[0] if lines and _DOMAIN.fullmatch(lines[0]) else ""


def _spaced(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _printable(text: str) -> str:
    return " ".join(_spaced(text).split())


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
