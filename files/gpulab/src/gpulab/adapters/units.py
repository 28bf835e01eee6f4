"""systemd's units: what they may open, and programs run in one, through systemctl(1) and systemd-run(1)."""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import GpulabError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Runner = Callable[[Sequence[str]], str]

_SECONDS = 60
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_RUNTIME_DIR = "run/systemd/system.control"
_RUNTIME_FILES = ("50-DevicePolicy.conf", "50-DeviceAllow.conf")
_EVERYTHING = ("char-* rwm", "block-* rwm")


def run(argv: Sequence[str]) -> str:
    """Run a program and return what it printed.

    Raises:
        GpulabError: it is not there, took over a minute, or ended with an error; with the last line it said.
    """
    try:
        done = subprocess.run(
            argv,
            env=_ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise GpulabError(f"{argv[0]} is not installed; gpulab needs systemd") from error
    except subprocess.TimeoutExpired as error:
        raise GpulabError(f"{argv[0]} did not end within {_SECONDS} s and was stopped; try again") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise GpulabError(f"{' '.join(argv[:2])} ended with {done.returncode}: {said[-1] if said else 'no message'}")
    return done.stdout


@dataclass(frozen=True)
class Policy:
    """What the configuration of a running unit says about devices.

    Attributes:
        unit: name.
        policy: `auto`, `closed` or `strict` (systemd.resource-control(5)).
        allow: entries of DeviceAllow=, such as `/dev/fuse rw`.
    """

    unit: str
    policy: str
    allow: tuple[str, ...]


@dataclass(frozen=True)
class Units:
    """systemd of this machine.

    Attributes:
        root: the folder that stands for `/`.
        run: runs a program; see `run`.
    """

    root: Path = Path("/")
    run: Runner = field(default=run)

    def version(self) -> int:
        """Return systemd's version, such as 257.

        Raises:
            GpulabError: systemd does not say.
        """
        words = self.run(["systemctl", "--version"]).split()  # `systemd 257 (257.13-1~deb13u1) ...`
        if words[:1] != ["systemd"] or not words[1:2] or not words[1].isdecimal():
            raise GpulabError("systemctl --version does not begin with systemd and a number; gpulab needs systemd")
        return int(words[1])

    def reload(self) -> None:
        """Have systemd read its units again."""
        self.run(["systemctl", "daemon-reload"])

    def reload_logind(self) -> None:
        """Have logind read its settings again; sessions stay as they are."""
        self.run(["systemctl", "kill", "--signal=HUP", "systemd-logind.service"])

    def policies(self, patterns: Iterable[str]) -> list[Policy]:
        """Return what running units may open.

        Args:
            patterns: names of units, `*` for any part of a name; only loaded units match such a pattern.
        """
        properties = "--property=Id,ControlGroup,DevicePolicy,DeviceAllow"
        text = self.run(["systemctl", "show", properties, "--", *patterns])
        found = []
        for block in text.split("\n\n"):
            pairs = [line.partition("=")[::2] for line in block.splitlines()]
            one = dict(pairs)
            if one.get("ControlGroup"):
                allow = tuple(value for key, value in pairs if key == "DeviceAllow" and value)
                found.append(Policy(one["Id"], one["DevicePolicy"], allow))
        return found

    def follow(self, policies: Iterable[Policy]) -> None:
        """Have the kernel follow the configuration of units that run already.

        Reading the units again is not enough: systemd 257 leaves the filters of running units alone, and neither it
        nor 252 takes one away from a slice. Setting the properties does it; the files that this leaves are removed
        again, so that the configuration alone counts.

        Args:
            policies: as `policies` returns them.
        """
        known = list(policies)
        for each in known:
            allow = each.allow if each.allow or each.policy != "auto" else _EVERYTHING
            settings = [f"DevicePolicy={each.policy}", "DeviceAllow=", *(f"DeviceAllow={entry}" for entry in allow)]
            self.run(["systemctl", "set-property", "--runtime", "--", each.unit, *settings])
        self.forget(each.unit for each in known)
        self.reload()

    def forget(self, patterns: Iterable[str]) -> None:
        """Remove what setting properties of units left, also in earlier runs; units must be read again then.

        Args:
            patterns: names of units, `*` for any part of a name.
        """
        wanted = [f"{pattern}.d" for pattern in patterns]
        for folder in (self.root / _RUNTIME_DIR).glob("*.d"):
            if any(fnmatchcase(folder.name, each) for each in wanted):
                for name in _RUNTIME_FILES:
                    (folder / name).unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # other settings are there too
                    folder.rmdir()

    def run_in(self, unit_slice: str, argv: Sequence[str]) -> str:
        """Run a program in a slice, as root, and return what it printed."""
        options = ["--quiet", "--collect", "--wait", "--pipe", f"--slice={unit_slice}"]
        return self.run(["systemd-run", *options, "--", *argv])
