"""What idle reclaim writes: to the owner of an idle holder, to their terminals, and one digest to the admin.

Accounts and names of programs were chosen by members: shown with control characters escaped, and cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from .. import names
from .display import printable
from .idle import LEASE
from .idle_cases import ENFORCE
from .idle_words import ENGLISH, WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .idle import Finding

_NAME_LIMIT = 40
_REASON_LIMIT = 300
_MAX_ROWS = 40
_INDENT = "    "
_GIB = 1 << 30
_MINUTE = 60
_DAY = 24 * 3600


@dataclass(frozen=True)
class Letter:
    """One mail.

    Attributes:
        recipient: account name.
        subject: one line.
        body: plain text.
    """

    recipient: str
    subject: str
    body: str


@dataclass(frozen=True)
class Digest:
    """What the admin reads.

    Attributes:
        overdue: idle, not answered; with the time of the warning, seconds since 1970.
        ended: what was ended since the last digest; with the time.
        stuck: what would not end.
        unknown: what cannot be measured.
    """

    overdue: Sequence[tuple[Finding, float]] = ()
    ended: Sequence[tuple[Finding, float]] = ()
    stuck: Sequence[tuple[Finding, float]] = ()
    unknown: Sequence[Finding] = ()

    @property
    def count(self) -> int:
        """How many entries there are."""
        return len(self.overdue) + len(self.ended) + len(self.stuck) + len(self.unknown)


@dataclass(frozen=True)
class Trouble:
    """Why something cannot be judged.

    Attributes:
        kind: `nvml`, `card`, `store` or `damaged`.
        reason: one clause; of `damaged` the file.
        card: index of the card; empty when it is not about one.
    """

    kind: str
    reason: str
    card: str = ""

    @property
    def key(self) -> str:
        """What makes it the same trouble in the next run."""
        return f"{self.kind} {self.card} {self.reason if self.kind == 'damaged' else ''}".strip()


@dataclass(frozen=True)
class Writer:
    """Writes in one language.

    Attributes:
        host: the server's name.
        admin: account name of the person to ask.
        language: `en` or `zh`.
        now: seconds since 1970.
        mode: what happens without an answer.
        answer_minutes: time to answer.
        keep_hours: longest keeping.
        grace_seconds: between TERM and KILL.
    """

    host: str
    admin: str
    language: str
    now: float
    mode: str
    answer_minutes: float
    keep_hours: float
    grace_seconds: float

    @property
    def words(self) -> Mapping[str, str]:
        """The words of the language."""
        return WORDS.get(self.language, ENGLISH)

    def warning(self, user: str, findings: Sequence[Finding]) -> Letter:
        """Ask the owner of idle holders whether they are still needed."""
        minutes = min(finding.seconds for finding in findings) // _MINUTE
        deadline = self.time(self.now + self.answer_minutes * _MINUTE)
        pids = " ".join(str(finding.runner.pid) for finding in findings[:_MAX_ROWS])
        paragraphs = [
            [self.fill("warn", minutes=minutes), *self.rows(findings)],
            [
                self.fill("warn enforce" if self.mode == ENFORCE else "warn notify", when=deadline),
                self.words["warn work"],
            ],
            [self.fill("warn keep", hours=f"{self.keep_hours:g}"), f"{_INDENT}gpu-keep"],
            [self.words["warn end"], f"{_INDENT}kill {pids}"],
        ]
        return self.letter(user, self.title("warn title", findings), paragraphs)

    def terminal(self, finding: Finding) -> str:
        """Return one line for the owner's terminals."""
        return self.fill("terminal", **self.holder(finding))

    def ended(self, user: str, findings: Sequence[Finding]) -> Letter:
        """Tell the owner what was ended and why."""
        paragraphs = [
            [self.fill("ended", when=self.time(self.now)), *self.rows(findings)],
            [self.fill("ended how", grace=f"{self.grace_seconds:g}"), self.words["ended again"]],
        ]
        return self.letter(user, self.title("ended title", findings), paragraphs)

    def digest(self, digest: Digest) -> Letter:
        """Tell the admin everything there is in one mail."""
        paragraphs = []
        for name, listed in (("overdue", digest.overdue), ("ended", digest.ended), ("stuck", digest.stuck)):
            rows = [self.fill(self.digest_row(name, each), **self.holder(each, told)) for each, told in listed]
            if rows:
                paragraphs.append([self.words[f"digest {name}"], *self.cut(rows)])
        if digest.unknown:
            rows = [self.fill("row unknown", **self.holder(each)) for each in digest.unknown]
            paragraphs.append([self.words["digest unknown"], *self.cut(rows), self.words["digest unknown do"]])
        paragraphs.append([self.words["digest foot"]])
        return self.letter(self.admin, self.fill("digest title", count=digest.count), paragraphs)

    @staticmethod
    def digest_row(name: str, finding: Finding) -> str:
        """Return the word for a row of the digest."""
        if name == "ended":
            return "row ended"
        return "row digest lease" if finding.holds == LEASE else "row digest"

    def troubles(self, troubles: Sequence[Trouble]) -> Letter:
        """Tell the admin why something cannot be judged."""
        rows = [
            self.fill(f"trouble {each.kind}", reason=printable(each.reason.rstrip("."), _REASON_LIMIT), card=each.card)
            for each in troubles
        ]
        return self.letter(
            self.admin, self.words["trouble title"], [self.cut(rows, ""), [self.words["trouble meanwhile"]]]
        )

    def letter(self, recipient: str, title: str, paragraphs: Sequence[Sequence[str]]) -> Letter:
        """Put a mail together."""
        foot = self.fill("foot", rules=names.HANDBOOK_DIR / "README.md")
        parts = [self.fill("hello", recipient=recipient), *("\n".join(lines) for lines in paragraphs), foot]
        return Letter(recipient, self.fill("subject", title=title), "\n\n".join(parts) + "\n")

    def title(self, word: str, findings: Sequence[Finding]) -> str:
        """Return the title of the first, with how many more there are."""
        title = self.fill(word, **self.holder(findings[0]))
        more = len(findings) - 1
        return f"{title} {self.fill('more', count=more)}" if more else title

    def rows(self, findings: Sequence[Finding]) -> list[str]:
        """List holders for their owner."""
        return self.cut([self.fill("row lease" if f.holds == LEASE else "row", **self.holder(f)) for f in findings])

    def cut(self, rows: Sequence[str], indent: str = _INDENT) -> list[str]:
        """Indent rows, and leave out what nobody reads."""
        shown = [indent + row for row in rows[:_MAX_ROWS]]
        if len(rows) > _MAX_ROWS:
            shown.append(indent + self.fill("more", count=len(rows) - _MAX_ROWS))
        return shown

    def holder(self, finding: Finding, told: float | None = None) -> dict[str, object]:
        """Return what is said about a holder, by the names used in the words."""
        memory = self.words["memory unknown"] if finding.memory is None else f"{finding.memory / _GIB:.1f} GiB"
        cpu = self.words["cpu unknown"] if finding.cpu_percent is None else f"{finding.cpu_percent:.0f} %"
        return {
            "pid": finding.runner.pid,
            "user": printable(finding.runner.user, _NAME_LIMIT),
            "command": printable(finding.runner.command, _NAME_LIMIT),
            "card": ", ".join(map(str, finding.cards)),
            "memory": memory,
            "cpu": cpu,
            "lease": finding.lease,
            "minutes": finding.seconds // _MINUTE,
            "since": self.time(finding.since),
            "told": "" if told is None else self.time(told),
            "when": "" if told is None else self.time(told),
        }

    def time(self, at: float) -> str:
        """Write a moment in the server's wall clock; with the day when it is not within a day of now."""
        when = datetime.fromtimestamp(at)  # noqa: DTZ006 - the server's wall clock is meant
        return f"{when:%H:%M}" if abs(at - self.now) < _DAY / 2 else f"{when:%Y-%m-%d %H:%M}"

    def fill(self, word: str, **values: object) -> str:
        """Fill in one phrase."""
        shared = {"host": self.host, "admin": self.admin, "grace": f"{self.grace_seconds:g}"}
        return self.words[word].format_map({**shared, **values})
