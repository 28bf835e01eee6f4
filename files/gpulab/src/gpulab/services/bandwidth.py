"""Have the network line shaped as the settings say: apply, read back, undo.

/run/gpulab/net.json (root only) says what is in force and what the kernel showed of it then; in /run, because a reboot
ends both. /var/lib/gpulab/net/confirmed.json holds the settings that somebody found to work: what is brought back after
a reboot, after a hand's change, and when nobody confirms a new one in time.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import names
from ..adapters.files import exclusive_lock, read_regular, write_atomic
from ..adapters.programs import output_of
from ..errors import GpulabError, InputError
from ..rules.bandwidth import IFB, TABLE, Shape, ip_commands, nft_rules, parse_networks, parse_rate, tc_commands
from ..settings import Bandwidth

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Run = Callable[[Sequence[str], float, str], str]
    """Called like adapters.programs.output_of."""

MODULES = (
    "sch_htb",
    "sch_fq_codel",
    "sch_ingress",
    "cls_flow",
    "cls_flower",
    "cls_matchall",
    "act_connmark",
    "act_mirred",
    "act_gact",
    "nf_tables",
)
"""What the shape needs besides ifb, as kernel modules."""

_PATIENCE = 20.0
_STATE_LIMIT = 1 << 20
_LOCK_SECONDS = 60.0
_CLASS_RATE = re.compile(r"\brate ([0-9.]+)([KMGT]?)bit\b")
_PREFIXES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_TOLERANCE = 0.01
"""tc shows rates rounded."""

_UNDO = "gpulab-net-undo"


@dataclass(frozen=True)
class World:
    """The outside.

    Attributes:
        root: the folder that stands for `/`.
        run: runs a program.
    """

    root: Path = Path("/")
    run: Run = output_of

    def say(self, *command: str, given: str = "") -> str:
        """Run a program and return what it prints.

        Raises:
            GpulabError: it failed; with its last line.
        """
        try:
            return self.run(command, _PATIENCE, given)
        except (OSError, TimeoutError) as error:
            raise GpulabError(f"{' '.join(command[:4])}: {getattr(error, 'strerror', None) or error}") from error

    def file(self, folder: Any, name: str) -> Path:
        """Return the path of one of our files."""
        return Path(names.under(self.root, folder)) / name


def wanted(settings: Bandwidth, world: World) -> Shape | None:
    """Return the shape that the settings ask for on this machine; None for no shaping.

    Raises:
        InputError: a setting makes no sense, or there is no such interface.
        GpulabError: the machine cannot be asked for its default route.
    """
    if not settings.up:
        return None
    up = parse_rate(settings.up, "bandwidth_rate_up")
    down = parse_rate(settings.down or settings.up, "bandwidth_rate_down")
    cap = parse_rate(settings.member_cap, "bandwidth_member_cap") if settings.member_cap else 0
    exempt = parse_networks(list(settings.exempt), "bandwidth_exempt")
    interface = settings.interface or _default_interface(world)
    folder = Path(names.under(world.root, names.SYS_NET_DIR))
    if interface not in _interfaces(folder):
        known = ", ".join(name for name in _interfaces(folder) if name not in {"lo", IFB})
        raise InputError(f'bandwidth_interface is "{interface}"; this server has {known}')
    mtu = int((folder / interface / "mtu").read_text())
    return Shape(interface, mtu, up, down, exempt, cap)


def _interfaces(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def _default_interface(world: World) -> str:
    for family in ("-4", "-6"):
        routes = json.loads(world.say("ip", family, "-json", "route", "show", "default") or "[]")
        devices = [(route.get("metric", 0), str(route["dev"])) for route in routes if "dev" in route]
        if devices:
            return min(devices)[1]
    raise InputError("there is no default route to find the network interface by; set bandwidth_interface")


def document(shape: Shape) -> dict[str, Any]:
    """Return a shape as JSON has it."""
    return {**asdict(shape), "exempt": [str(net) for net in shape.exempt]}


def _shape(found: Mapping[str, Any]) -> Shape:
    return Shape(**{**found, "exempt": parse_networks(found["exempt"], "exempt")})


def in_force(world: World) -> Shape | None:
    """Return the shape that was applied, as noted down; None when there is none."""
    found = _read(world.file(names.RUN_DIR, "net.json"))
    return _shape(found["shape"]) if found else None


def differs(shape: Shape | None, world: World) -> bool:
    """Tell whether what the kernel has differs from a shape, also by a change that somebody made by hand."""
    found = _read(world.file(names.RUN_DIR, "net.json"))
    if shape is None or not found:
        return shape is not None or bool(found)
    return bool(found["shape"] != document(shape) or found["picture"] != _picture(shape, world))


def apply(asked: Bandwidth, world: World, *, undo_after: int = 0, dry_run: bool = False) -> bool:
    """Bring the kernel to what settings ask for.

    Args:
        asked: the settings; with no rate, the shaping ends.
        world: the outside.
        undo_after: seconds until `undo` comes by itself, unless `confirm` comes first; 0 when this is for good.
        dry_run: only tell.

    Returns:
        Whether something changed, or would.

    Raises:
        GpulabError: it could not be done; what was in force before is in force again.
        InputError: see `wanted`; or somebody else shapes the interface.
    """
    shape = wanted(asked, world)
    if dry_run:
        return _ready(asked, shape, world)
    with _locked(world):
        changes = _ready(asked, shape, world)
        if changes:
            if undo_after:
                _arm(undo_after, world)
            _change(in_force(world), shape, world)
        if not undo_after:
            _remember(asked, world)
    return changes


def confirm(asked: Bandwidth, world: World) -> None:
    """Keep what was applied: the server can still be reached.

    Raises:
        GpulabError: it was taken back before.
    """
    with contextlib.suppress(GpulabError):
        world.say("systemctl", "stop", f"{_UNDO}.timer")
    with _locked(world):
        if in_force(world) != wanted(asked, world):
            raise GpulabError(
                "the network line was changed back before the change was confirmed; see to it that the server is "
                "reached in time, or give it longer: bandwidth_undo_seconds"
            )
        _remember(asked, world)


def keep(world: World) -> bool:
    """Bring back what was confirmed, where a reboot, a new device or a hand took it away.

    Returns:
        Whether that was necessary.

    Raises:
        GpulabError: it could not be done.
        InputError: the interface is not there now.
    """
    with _locked(world):
        if _read(_former(world)) is None or _armed(world):
            return False  # a change is being tried
        shape = wanted(confirmed(world), world)
        changes = differs(shape, world)
        if changes:
            _change(in_force(world), shape, world)
    return changes


def undo(world: World) -> None:
    """Bring back what was confirmed last; with nothing of that kind, no shaping.

    Raises:
        GpulabError: it could not be done; then the line is not shaped at all.
    """
    with _locked(world):
        _change(in_force(world), wanted(confirmed(world), world), world)


def confirmed(world: World) -> Bandwidth:
    """Return the settings that were found to work; without a rate when there are none."""
    found = _read(_former(world)) or {}
    return Bandwidth(**{**found, "exempt": tuple(found.get("exempt", ()))})


def _former(world: World) -> Path:
    return world.file(names.NET_STATE_DIR, "confirmed.json")


def _remember(asked: Bandwidth, world: World) -> None:
    path = _former(world)
    if not asked.up:
        path.unlink(missing_ok=True)
    elif asked != confirmed(world):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(path, json.dumps(asdict(asked)).encode(), mode=0o600)


def _locked(world: World) -> contextlib.AbstractContextManager[None]:
    path = world.file(names.RUN_DIR, "net.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    return exclusive_lock(path, timeout=_LOCK_SECONDS)


def _ready(asked: Bandwidth, shape: Shape | None, world: World) -> bool:
    """Tell whether there is something to do, and that it may be done; what nobody confirmed yet is done again."""
    changes = differs(shape, world) or asked != confirmed(world)
    if changes and shape:
        _refuse_strangers(shape, world)
    return changes


def _armed(world: World) -> bool:
    shown = world.say("systemctl", "show", "--property=ActiveState", "--value", f"{_UNDO}.timer", f"{_UNDO}.service")
    return "activ" in shown.replace("inactive", "")


def _arm(seconds: int, world: World) -> None:
    with contextlib.suppress(GpulabError):
        world.say("systemctl", "stop", f"{_UNDO}.timer", f"{_UNDO}.service")
    world.say(
        *("systemd-run", "--quiet", "--collect", f"--unit={_UNDO}", f"--on-active={seconds}"),
        *("--timer-property=AccuracySec=100ms", "/opt/gpulab/current/bin/gpulab", "net", "undo"),
    )


def _change(before: Shape | None, shape: Shape | None, world: World) -> None:
    _clear(before, world)
    if shape is None:
        return
    try:
        _load(shape, world)
    except GpulabError as error:
        _clear(shape, world)
        if before:
            _load(before, world)
        raise GpulabError(f"{error}; the network line is as it was before") from error


def _refuse_strangers(shape: Shape, world: World) -> None:
    before = in_force(world)
    if before and before.interface == shape.interface:
        return  # ours, perhaps half done
    for each in json.loads(world.say("tc", "-json", "qdisc", "show", "dev", shape.interface) or "[]"):
        # What the kernel puts there by itself has handle 0.
        if (each.get("root") and each.get("handle", "0:") != "0:") or each.get("kind") in {"clsact", "ingress"}:
            raise InputError(
                f"{shape.interface} is shaped by somebody else ({each['kind']} {each['handle']}); end that first: "
                f"tc qdisc del dev {shape.interface} {'root' if each.get('root') else each['kind']}"
            )


def _load(shape: Shape, world: World) -> None:
    missing = [name for name in MODULES if not _loaded(world, "--quiet", name)]
    if missing or not _loaded(world, "--quiet", "ifb", "numifbs=0"):
        lacking = ", ".join(missing or ["ifb"])
        raise GpulabError(f"this kernel lacks {lacking}; on Ubuntu they are in linux-modules-extra-$(uname -r)")
    _note(shape, [], world)  # whoever is killed from here on leaves word what to take away
    world.say("nft", "--file", "-", given=nft_rules(shape))
    world.say("ip", "-batch", "-", given="\n".join(ip_commands()) + "\n")
    world.say("tc", "-batch", "-", given="\n".join(tc_commands(shape)) + "\n")
    for device, rate in ((shape.interface, shape.up), (IFB, shape.down)):
        found = [
            float(number) * _PREFIXES[prefix]
            for number, prefix in _CLASS_RATE.findall(world.say("tc", "class", "show", "dev", device, "classid", "1:1"))
        ]
        if not found or abs(found[0] - rate) > _TOLERANCE * rate:
            raise GpulabError(f"the kernel shapes {device} to {found or 'nothing'} instead of {rate} bit/s")
    _note(shape, _picture(shape, world), world)


def _note(shape: Shape, picture: list[str], world: World) -> None:
    content = json.dumps({"shape": document(shape), "picture": picture}).encode()
    write_atomic(world.file(names.RUN_DIR, "net.json"), content, mode=0o600)


def _loaded(world: World, *arguments: str) -> bool:
    try:
        world.say("modprobe", *arguments)
    except GpulabError:
        return False
    return True


def _clear(shape: Shape | None, world: World) -> None:
    """Take everything of ours away; what is not there is no fault."""
    commands: list[tuple[str, ...]] = [("ip", "link", "delete", IFB), ("nft", "delete", "table", "inet", TABLE)]
    if shape:
        commands = [("tc", "qdisc", "delete", "dev", shape.interface, which) for which in ("root", "clsact")] + commands
    for command in commands:
        with contextlib.suppress(GpulabError):
            world.say(*command)
    world.file(names.RUN_DIR, "net.json").unlink(missing_ok=True)


def _picture(shape: Shape, world: World) -> list[str]:
    """Return what the kernel's tools show, without counters."""
    questions: list[tuple[str, ...]] = [("nft", "--stateless", "--terse", "list", "table", "inet", TABLE)]
    for device in (shape.interface, IFB):
        questions += [
            ("tc", "qdisc", "show", "dev", device),
            ("tc", "class", "show", "dev", device, "classid", "1:1"),
            ("tc", "filter", "show", "dev", device, "parent", "10:"),
        ]
    questions.append(("tc", "filter", "show", "dev", shape.interface, "ingress"))
    return [_shown(question, world) for question in questions]


def _shown(question: tuple[str, ...], world: World) -> str:
    try:
        return world.say(*question)
    except GpulabError as error:
        return str(error)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(read_regular(path, limit=_STATE_LIMIT))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise GpulabError(f"{path} cannot be understood ({error}); delete it and run the playbook again") from error
    return found if isinstance(found, dict) else None
