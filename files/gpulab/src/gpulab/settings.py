"""The settings of the server: /etc/gpulab/gpulab.toml and conf.d beside it, written by the roles from the inventory."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import names
from .adapters.files import read_regular
from .errors import InputError
from .rules.exemptions import parse_span
from .rules.windows import DEFAULT_TABLE, REFUSE, WARN, Window, as_raw, parse_windows

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Mapping

_LIMIT = 1 << 20
_WEEK_MINUTES = 7 * 24 * 60

_ACCOUNT = re.compile(r"[a-z][a-z0-9_-]{0,31}")

USUAL = "usual"
"""Stands for the windows that gpulab comes with."""


@dataclass(frozen=True)
class Lab:
    """Who the lab is.

    Attributes:
        name: the lab's name, for pages and mail.
        admin: account name of the person to ask; gets the mails meant for the admin.
        language: `en` or `zh`: which language comes first on pages.
        tier: `table`, `allocator` or `slurm`.
    """

    name: str = "GPU lab"
    admin: str = "root"
    language: str = "en"
    tier: str = "table"


@dataclass(frozen=True)
class Bandwidth:
    """How the network line is shared; rates such as `500mbit` (rules/bandwidth.py reads them).

    Attributes:
        up: rate from this server; empty for no shaping.
        down: rate to this server.
        interface: network device; empty for the one of the default route.
        exempt: networks whose traffic is neither shaped nor counted.
        member_cap: the most that one member may have in each direction; empty for no cap.
    """

    up: str = ""
    down: str = ""
    interface: str = ""
    exempt: tuple[str, ...] = ()
    member_cap: str = ""


@dataclass(frozen=True)
class Board:
    """The web page that shows who is on which card.

    Attributes:
        enabled: whether it is written.
    """

    enabled: bool = False


@dataclass(frozen=True)
class Booking:
    """Rules of the booking sheet.

    Attributes:
        max_hours: the longest single booking, hours.
        max_days_ahead: how far ahead a booking may start, days.
        grace_minutes: how long ago a new booking may have started, minutes.
    """

    max_hours: float = 168.0
    max_days_ahead: int = 60
    grace_minutes: int = 10


@dataclass(frozen=True)
class Checks:
    """When check_gpu speaks up.

    Attributes:
        soon_minutes: remind this long before a booking starts, minutes.
        unused_minutes: a booking without any process of its owner this long after its start is unused, minutes.
        overrun_minutes: a process may go on this long after its booking ended before it counts, minutes.
        ignore_users: accounts whose processes never count as use without booking.

    Raises:
        InputError: a time is negative or longer than a week.
    """

    soon_minutes: int = 120
    unused_minutes: int = 30
    overrun_minutes: int = 10
    ignore_users: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse times that would switch a check off or flood people without saying so."""
        for name in ("soon_minutes", "unused_minutes", "overrun_minutes"):
            minutes = getattr(self, name)
            if not 0 <= minutes <= _WEEK_MINUTES:
                raise InputError(f"[checks] {name} is {minutes}; expected 0 to {_WEEK_MINUTES} minutes, a week")


def _table(value: Any, *, source: str) -> tuple[Window, ...]:
    return parse_windows(DEFAULT_TABLE if value == USUAL else value, source=source)


def _on_break(value: Any, *, source: str) -> str:
    if value not in (WARN, REFUSE):  # a list given by mistake has no hash: no set here
        raise InputError(f"{source} is {value!r}; expected {WARN} or {REFUSE}")
    return str(value)


@dataclass(frozen=True)
class Windows:
    """Golden hours: what the hours of the week are meant for.

    Attributes:
        table: the windows; written as an array of tables, or as `usual` for the ones that gpulab comes with.
        on_break: `warn` or `refuse`: what a job meets that breaks the rules of its window.
    """

    table: tuple[Window, ...] = field(
        default_factory=lambda: parse_windows(DEFAULT_TABLE),
        metadata={"read": _table, "write": lambda table: [as_raw(window) for window in table]},
    )
    on_break: str = field(default=WARN, metadata={"read": _on_break})

    @property
    def strict(self) -> bool:
        """Whether a job that breaks the rules is refused."""
        return self.on_break == REFUSE


@dataclass(frozen=True)
class Allocator:
    """What allocate_gpu may give.

    Attributes:
        max_cards: the most cards that one member may have at a time; 0 for no limit.
        max_leases: the most commands that one member may run on cards at a time; 0 for no limit.
        devices: device nodes that a leased command may open besides its cards' (systemd.resource-control(5),
            DeviceAllow=).

    Raises:
        InputError: a number is negative.
    """

    max_cards: int = 0
    max_leases: int = 0
    devices: tuple[str, ...] = ("/dev/fuse", "/dev/net/tun")

    def __post_init__(self) -> None:
        """Refuse what would mean something else than people think."""
        for name in ("max_cards", "max_leases"):
            if getattr(self, name) < 0:
                raise InputError(f"[allocator] {name} is {getattr(self, name)}; expected 0 (no limit) or more")


@dataclass(frozen=True)
class Datasets:
    """Where datasets are, and who cares for them.

    Attributes:
        path: the folder that everybody reads.
        store: root's folder, where they really lie.
        curators: accounts that may add, publish and remove.
        copies_mib: files from this size on are looked for in homes, MiB.

    Raises:
        InputError: the size is less than 1, or a curator has no account name.
    """

    path: str = "/data/datasets"
    store: str = "/data/.datasets"
    curators: tuple[str, ...] = ()
    copies_mib: int = 100

    def __post_init__(self) -> None:
        """Refuse what would have every small file read, and words that mean something in sudoers(5)."""
        for name in self.curators:
            if not _ACCOUNT.fullmatch(name):
                raise InputError(f"[datasets] curators has {name!r}; expected account names, such as alice")
        if self.copies_mib < 1:
            raise InputError(f"[datasets] copies_mib is {self.copies_mib}; expected 1 or more")


@dataclass(frozen=True)
class Reclaim:
    """What becomes of cards that are held and not used.

    Attributes:
        mode: `notify`, `enforce` or `off`.
        percent: below this much SM utilisation a process is idle.
        idle_minutes: so long idle, then its owner is asked.
        answer_minutes: time to answer.
        grace_seconds: between TERM and KILL.
        keep_max_hours: the longest keeping that one answer can ask for.
        sample_seconds: time between two looks.
        digest_minutes: least time between two digests.
        retention_days: how long samples are kept.
        admins: whether admins' own processes are treated like everybody's.
        exempt_users: accounts that are left alone.
        exempt_commands: patterns of program names that are left alone.
        exempt_cards: indexes or UUIDs of cards that are left alone.
        exempt_times: when nothing counts, such as `22:00-08:00`.

    Raises:
        InputError: a value makes no sense.
    """

    mode: str = "notify"
    percent: int = 5
    idle_minutes: float = 15.0
    answer_minutes: float = 30.0
    grace_seconds: float = 60.0
    keep_max_hours: float = 24.0
    sample_seconds: int = 60
    digest_minutes: float = 60.0
    retention_days: int = 90
    admins: bool = False
    exempt_users: tuple[str, ...] = ()
    exempt_commands: tuple[str, ...] = ()
    exempt_cards: tuple[str, ...] = ()
    exempt_times: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what would end work that is not idle, or never do anything."""
        if self.mode not in {"notify", "enforce", "off"}:
            raise InputError(f"[reclaim] mode is {self.mode!r}; expected notify, enforce or off")
        limits = {
            "percent": (1, 100),
            "sample_seconds": (1, 600),
            "grace_seconds": (0, 3600),
            "keep_max_hours": (0, 24 * 365),
            "retention_days": (1, 3650),
        }
        for name, (least, most) in limits.items():
            if not least <= getattr(self, name) <= most:
                raise InputError(f"[reclaim] {name} is {getattr(self, name)}; expected {least} to {most}")
        for name in ("idle_minutes", "answer_minutes", "digest_minutes"):
            if not 0 < getattr(self, name) <= _WEEK_MINUTES:
                raise InputError(f"[reclaim] {name} is {getattr(self, name)}; expected more than 0, a week at most")
        if self.idle_minutes * 60 < 2 * self.sample_seconds:
            raise InputError("[reclaim] idle_minutes is shorter than two looks (sample_seconds); make it longer")
        for text in self.exempt_times:
            parse_span(text)


@dataclass(frozen=True)
class Settings:
    """All settings, with the defaults that hold when the file or a key is absent."""

    lab: Lab = field(default_factory=Lab)
    allocator: Allocator = field(default_factory=Allocator)
    bandwidth: Bandwidth = field(default_factory=Bandwidth)
    board: Board = field(default_factory=Board)
    booking: Booking = field(default_factory=Booking)
    checks: Checks = field(default_factory=Checks)
    datasets: Datasets = field(default_factory=Datasets)
    reclaim: Reclaim = field(default_factory=Reclaim)
    windows: Windows = field(default_factory=Windows)


def parse(document: Mapping[str, Any], *, source: str) -> Settings:
    """Turn a TOML document into settings.

    Args:
        document: the parsed TOML.
        source: the file's name, for messages.

    Raises:
        InputError: an unknown section or key, or a value of the wrong type.
    """
    sections: dict[str, Any] = {}
    known = {item.name: item.default_factory for item in fields(Settings)}
    for section, values in document.items():
        if section not in known:
            raise InputError(f"{source}: section [{section}] is unknown; expected one of {', '.join(known)}")
        factory: Any = known[section]
        default = factory()
        if not isinstance(values, dict):
            raise InputError(f"{source}: {section} must be a section, written [{section}]")
        sections[section] = _section(default, values, source=f"{source}: [{section}]")
    return Settings(**sections)


def _section(default: Any, values: Mapping[str, Any], *, source: str) -> Any:
    kinds = {item.name: type(getattr(default, item.name)) for item in fields(default)}
    readers = {item.name: item.metadata["read"] for item in fields(default) if "read" in item.metadata}
    chosen: dict[str, Any] = {}
    for key, value in values.items():
        if key not in kinds:
            raise InputError(f"{source} {key} is unknown; expected one of {', '.join(kinds)}")
        if key in readers:  # more than a scalar or a list of words: the field says how it is read
            chosen[key] = readers[key](value, source=f"{source} {key}")
        elif kinds[key] is tuple and isinstance(value, list) and all(isinstance(item, str) for item in value):
            chosen[key] = tuple(value)
        elif kinds[key] is float and type(value) in {int, float}:
            chosen[key] = float(value)
        elif type(value) is kinds[key] and kinds[key] is not tuple:
            chosen[key] = value
        else:
            raise InputError(f"{source} {key} is {value!r}; expected {kinds[key].__name__}")
    return type(default)(**chosen)


def to_document(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return all settings in the form in which they are written; `parse` reads them back."""
    document = asdict(settings)
    for section in fields(settings):
        for item in fields(getattr(settings, section.name)):
            value = getattr(getattr(settings, section.name), item.name)
            if "write" in item.metadata:
                document[section.name][item.name] = item.metadata["write"](value)
            elif isinstance(value, tuple):
                document[section.name][item.name] = list(value)
    return document


def load_file(path: Path) -> Settings:
    """Read one settings file.

    Raises:
        FileNotFoundError: it is not there.
        InputError: the file is not TOML or says something unknown.
        UnsafeFileError: the file is a link or not an ordinary file.
    """
    return parse(_document(path), source=str(path))


def load(root: Path = Path("/")) -> Settings:
    """Read the settings below a root folder: the main file, then a file for each section in conf.d.

    Returns:
        The settings; defaults where no file says otherwise.

    Raises:
        InputError: a file is not TOML, says something unknown, or repeats a section of another.
        UnsafeFileError: a file is a link or not an ordinary file.
    """
    document: dict[str, Any] = {}
    main = Path(names.under(root, names.SETTINGS_FILE))
    folder = Path(names.under(root, names.SETTINGS_DIR))
    for path in [main, *sorted(folder.glob("*.toml"))]:
        try:
            found = _document(path)
        except FileNotFoundError:
            continue
        parse(found, source=str(path))
        for section in found:
            if section in document:
                raise InputError(f"{path}: section [{section}] stands in another settings file too; keep one")
        document.update(found)
    return parse(document, source=str(main))


def _document(path: Path) -> dict[str, Any]:
    text = read_regular(path, limit=_LIMIT).decode()
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: {error}") from error
