"""The line that puts each cron and at job into the slice of its user, in the files of PAM (pam.d(5), pam_systemd(8)).

Debian and Ubuntu register login sessions with logind, but not jobs: those stay in the service that started them, which
cannot be closed for members and open for root. Both files are conffiles: dpkg keeps local changes.
"""

from __future__ import annotations

from dataclasses import dataclass

FILES = ("/etc/pam.d/cron", "/etc/pam.d/atd")

BACKGROUND = "background"
LIGHT = "background-light"
"""The same without starting the user's service manager for each job, which costs 0.1 to 0.3 s of CPU time."""

_LIGHT_SINCE = 257
_MARK = "# gpulab: each job into its user's slice"


@dataclass(frozen=True)
class Line:
    """One line of a PAM file.

    Attributes:
        session_class: class of the session, see pam_systemd(8).
    """

    session_class: str

    def __str__(self) -> str:
        """Return it as it stands in the file. A job whose session cannot be registered still runs, without cards."""
        return f"session optional pam_systemd.so class={self.session_class} {_MARK}\n"


def line_for(systemd: int) -> Line:
    """Return the line for a version of systemd: an unknown class would leave every job where it is."""
    return Line(LIGHT if systemd >= _LIGHT_SINCE else BACKGROUND)


def without(text: str) -> str:
    """Return a PAM file without the guard's line."""
    return "".join(line for line in text.splitlines(keepends=True) if _MARK not in line)


def with_line(text: str, line: Line) -> str:
    """Return a PAM file with the guard's line, once; unchanged where somebody registers the sessions already.

    It stands right after the session modules that are common to all services, as on the distribution's login sessions.
    """
    lines = without(text).splitlines(keepends=True)
    if any(_registers(each) for each in lines):
        return "".join(lines)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    common = [number for number, each in enumerate(lines) if each.startswith("@include common-session")]
    lines.insert(common[-1] + 1 if common else len(lines), str(line))
    return "".join(lines)


def _registers(line: str) -> bool:
    words = line.partition("#")[0].split()
    return bool(words) and words[0].lstrip("-") == "session" and any("pam_systemd.so" in word for word in words)
