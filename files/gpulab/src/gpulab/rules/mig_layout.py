"""What the inventory asks for under MIG, read from either of two forms; nothing here knows the cards.

The long form is the configuration file of nvidia-mig-parted (its README, "mig-configs"), the whole document:

    version: v1
    mig-configs:
      all-balanced:
        - device-filter: ["0x20B210DE"]
          devices: all
          mig-enabled: true
          mig-devices: {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}

The short form names cards by their index: `{0: "3g.40gb,2g.20gb,1g.10gb", 1: off}`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VERSION = "v1"
FORMS = (
    'the short form is {0: "3g.40gb,2g.20gb,1g.10gb", 1: off}, the long one a document of nvidia-mig-parted with the '
    "keys version and mig-configs"
)

_DOCUMENT_KEYS = ("version", "mig-configs")
_ENTRY_KEYS = ("device-filter", "devices", "mig-enabled", "mig-devices")
_REQUIRED_KEYS = ("devices", "mig-enabled")
# Wrong case passes here: the card's own list of names gives the better answer.
_PROFILE = re.compile(r"(?:\d{1,2}c\.)?\d{1,2}g\.\d{1,4}gb(?:[+-][a-z]+(?:\.[a-z]+)*)?", re.IGNORECASE)
_LONGEST_ECHO = 40
_MOST_INSTANCES = 64
"""More than any card has; a count beyond is a typing error, not a wish to be worked through."""
_LARGEST_INDEX = 1023
_LARGEST_ID = 0xFFFFFFFF


@dataclass(frozen=True)
class Target:
    """What one card shall have, before anybody knows where its instances lie.

    Attributes:
        enabled: MIG mode.
        devices: profile name and how many of it, in order of name. A name such as `1c.3g.40gb` asks for a compute
            instance of one slice in a GPU instance of three.
    """

    enabled: bool
    devices: tuple[tuple[str, int], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every wanted MIG device by the name of its profile."""
        return tuple(name for name, count in self.devices for _ in range(count))

    @property
    def text(self) -> str:
        """The target in words."""
        if not self.enabled:
            return "MIG off"
        return ", ".join(self.names) or "MIG on, no instances"


@dataclass(frozen=True)
class DeviceFilter:
    """Which models an entry is for.

    Attributes:
        device_id: PCI device id and, in its lower half, vendor id.
        subsystem_id: PCI subsystem id likewise; None for any.
    """

    device_id: int
    subsystem_id: int | None = None


@dataclass(frozen=True)
class Entry:
    """One wish: some cards, and what they shall have.

    Attributes:
        where: what messages call it.
        cards: indexes; None for every card that can be split.
        filters: models it is for; empty for every model.
        target: what each of the cards shall have.
    """

    where: str
    cards: tuple[int, ...] | None
    filters: tuple[DeviceFilter, ...]
    target: Target


@dataclass(frozen=True)
class Layout:
    """Everything asked for.

    Attributes:
        source: where it stands: a variable, or a file.
        entries: the wishes; empty when nothing is asked for.
    """

    source: str
    entries: tuple[Entry, ...] = ()


def parse_layout(raw: object, *, label: str = "", source: str = "mig_layout") -> Layout:
    """Read a wanted layout.

    Args:
        raw: the value: a mapping, JSON text of one, or nothing (None, an empty mapping).
        label: which of the document's configurations is meant; may be empty when there is only one.
        source: what messages call the value.

    Raises:
        InputError: it cannot be understood; one line with the place, the value and the remedy.
    """
    if isinstance(raw, str):
        raw = parse_json(raw, source=source) if raw.strip() else None
    if raw in (None, "", {}):
        return Layout(source)
    if not isinstance(raw, dict):
        raise InputError(f"{source} is {_echo(raw)}; {FORMS}")
    raw = _text_keys(raw, source)
    if any(key in raw for key in _DOCUMENT_KEYS):
        return Layout(source, _document(raw, label, source))
    if label:
        raise InputError(f"{source} is in the short form, which has no labels, but {label!r} was asked for; drop that")
    return Layout(source, tuple(_short(key, value, source) for key, value in raw.items()))


def parse_json(text: str, *, source: str) -> Any:
    """Read JSON in which no key may stand twice.

    Raises:
        InputError: it is not JSON, or a key stands twice.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        for key, number in Counter(key for key, _ in pairs).items():
            if number > 1:
                raise InputError(f"{source}: key {key!r} stands {number} times in one mapping; keep one")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source} is not JSON ({str(error)[:80]}); give it as a mapping, {FORMS}") from error


def render_layout(targets: Mapping[int, Target], label: str) -> str:
    """Return a layout as a document of nvidia-mig-parted, in JSON, which is YAML too.

    Args:
        targets: what each card shall have, by index.
        label: name of the configuration.
    """
    entries = []
    for index, target in sorted(targets.items()):
        entry: dict[str, Any] = {"devices": [index], "mig-enabled": target.enabled}
        if target.enabled:
            entry["mig-devices"] = dict(target.devices)
        entries.append(entry)
    return json.dumps({"version": VERSION, "mig-configs": {label: entries}}, indent=2) + "\n"


def _echo(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_ECHO else f"{text[:_LONGEST_ECHO]}..."


def _text_keys(raw: Mapping[Any, Any], where: str) -> dict[str, Any]:
    """YAML has numbers as keys where JSON has text; 0 and "0" are the same card."""
    keys = Counter(str(key) for key in raw)
    for key, number in keys.items():
        if number > 1:
            raise InputError(f"{where}: key {key} stands {number} times; keep one")
    return {str(key): value for key, value in raw.items()}


def _choose_known(keys: Iterable[str], known: tuple[str, ...], where: str) -> None:
    for key in keys:
        if key not in known:
            raise InputError(f"{where}: key {_echo(key)} is unknown; expected one of {', '.join(known)}")


def _short(key: str, value: object, source: str) -> Entry:
    where = f"{source}[{key}]" if len(key) <= _LONGEST_ECHO else source
    if not key.isdecimal() or int(key) > _LARGEST_INDEX:
        raise InputError(f"{source}: key {_echo(key)} is not the index of a card; {FORMS}")
    return Entry(where, (int(key),), (), _short_target(value, where))


def _short_target(value: object, where: str) -> Target:
    if value is False or (isinstance(value, str) and value.strip() == "off"):  # YAML reads a bare `off` as false
        return Target(enabled=False)
    if isinstance(value, str) and value.strip():
        value = [name.strip() for name in value.split(",")]
    if isinstance(value, list) and value and all(isinstance(name, str) for name in value):
        return Target(enabled=True, devices=_devices(Counter(value), where))
    raise InputError(f'{where} is {_echo(value)}; give profiles such as "3g.40gb,2g.20gb,1g.10gb", or off')


def _document(raw: dict[str, Any], label: str, source: str) -> tuple[Entry, ...]:
    _choose_known(raw, _DOCUMENT_KEYS, source)
    if raw.get("version") != VERSION:
        given = f"has version {_echo(raw['version'])}" if "version" in raw else "has no version"
        raise InputError(f"{source} {given}; expected version: {VERSION}")
    configurations = raw.get("mig-configs")
    if not isinstance(configurations, dict) or not configurations:
        raise InputError(f"{source}: mig-configs is {_echo(configurations)}; expected labels, each with a list")
    configurations = _text_keys(configurations, f"{source}: mig-configs")
    # All of them are read, so that a slip in another one is found now and not when it is needed.
    parsed = {name: _configuration(name, entries, source) for name, entries in configurations.items()}
    if not label and len(parsed) > 1:
        raise InputError(f"{source} has {len(parsed)} labels; choose one with mig_label: {_some(parsed)}")
    if label and label not in parsed:
        raise InputError(f"{source} has no label {_echo(label)}; it has {_some(parsed)}")
    return parsed[label] if label else next(iter(parsed.values()))


def _some(names: Iterable[str], most: int = 8) -> str:
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _configuration(label: str, entries: object, source: str) -> tuple[Entry, ...]:
    where = f"{source}: {_echo(label)}"
    if not isinstance(entries, list) or not entries:
        raise InputError(f"{where} is {_echo(entries)}; expected a list of entries")
    return tuple(_entry(entry, f"{where}, entry {number}") for number, entry in enumerate(entries, start=1))


def _entry(entry: object, where: str) -> Entry:
    if not isinstance(entry, dict):
        raise InputError(f"{where} is {_echo(entry)}; expected the keys {', '.join(_ENTRY_KEYS)}")
    entry = _text_keys(entry, where)
    _choose_known(entry, _ENTRY_KEYS, where)
    for key in _REQUIRED_KEYS:
        if key not in entry:
            raise InputError(f"{where} has no {key}; expected the keys {', '.join(_REQUIRED_KEYS)}")
    enabled = entry["mig-enabled"]
    if not isinstance(enabled, bool):
        raise InputError(f"{where}: mig-enabled is {_echo(enabled)}; give true or false")
    if enabled and "mig-devices" not in entry:
        raise InputError(f"{where} has no mig-devices, which mig-enabled: true needs; {{}} for MIG without instances")
    devices = entry.get("mig-devices") or {}
    if not isinstance(devices, dict):
        raise InputError(f'{where}: mig-devices is {_echo(devices)}; give counts, such as {{"1g.10gb": 7}}')
    if devices and not enabled:
        raise InputError(f"{where} has mig-devices and mig-enabled: false; take one of them away")
    target = Target(enabled, _devices(devices, f"{where}: mig-devices"))
    if devices and not target.devices:
        raise InputError(f"{where}: all counts of mig-devices are 0; give mig-devices: {{}} for no instances")
    return Entry(where, _cards(entry["devices"], where), _filters(entry.get("device-filter"), where), target)


def _cards(value: object, where: str) -> tuple[int, ...] | None:
    if value == "all":
        return None
    if not isinstance(value, list) or not value or not all(type(index) is int for index in value):
        raise InputError(f"{where}: devices is {_echo(value)}; give all, or indexes such as [0, 1]")
    for index, number in Counter(value).items():
        if not 0 <= index <= _LARGEST_INDEX or number > 1:
            raise InputError(f"{where}: devices has {index}{' twice' if number > 1 else ''}; give each index once")
    return tuple(sorted(value))


def _filters(value: object, where: str) -> tuple[DeviceFilter, ...]:
    if value in (None, "", []):
        return ()
    values = value if isinstance(value, list) else [value]
    return tuple(_filter(item, where) for item in values)


def _filter(value: object, where: str) -> DeviceFilter:
    # `0x20B210DE`, or with the subsystem too `0x20B210DE:0x146310DE` (mig-parted 0.13 and later)
    try:
        ids = [int(part, 0) for part in str(value).split(":")]
    except ValueError:
        ids = []
    if not isinstance(value, str) or len(ids) not in {1, 2} or not all(0 <= number <= _LARGEST_ID for number in ids):
        raise InputError(f'{where}: device-filter has {_echo(value)}; give PCI device and vendor, such as "0x20B210DE"')
    return DeviceFilter(*ids)


def _devices(counts: Mapping[Any, Any], where: str) -> tuple[tuple[str, int], ...]:
    found = []
    for name, count in counts.items():
        if not isinstance(name, str) or not _PROFILE.fullmatch(name):
            raise InputError(
                f"{where} has {_echo(name)}, which is no profile name; write such as 3g.40gb or 1g.10gb+me"
            )
        if type(count) is not int or not 0 <= count <= _MOST_INSTANCES:
            raise InputError(
                f"{where}: {name} is {_echo(count)}; give how many, a whole number up to {_MOST_INSTANCES}"
            )
        if count:
            found.append((name, count))
    return tuple(sorted(found))
