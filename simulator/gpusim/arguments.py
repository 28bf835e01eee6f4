"""What can be typed after `gpusim`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from . import catalogue, faults

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    # argparse has no public name for what add_subparsers returns
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([MG])(?:iB)?")
_VERSION = re.compile(r"\d{1,6}(\.\d{1,6}){1,3}")
_LARGEST_NUMBER = 1_000_000
_LONGEST_TEXT = 60  # what nvml/state.h has room for
_UNITS = {"M": 1, "G": 1024}
_COMPUTE_MODES = {"default": 0, "prohibited": 2, "exclusive-process": 3}
_SWITCH = {"off": 0, "on": 1}


def _mib(text: str) -> int:
    """Read a size such as 20G or 512M as MiB."""
    match = _SIZE.fullmatch(text)
    if not match:
        raise argparse.ArgumentTypeError(f'"{text}" is not a size; write for instance 20G or 512M')
    return int(float(match[1]) * _UNITS[match[2]])


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) > _LARGEST_NUMBER:
        raise argparse.ArgumentTypeError(f'"{text}" is not a number from 0 to {_LARGEST_NUMBER}')
    return int(text)


def _percent(text: str) -> int:
    if not text.isdecimal() or int(text) > 100:  # noqa: PLR2004 - a percentage
        raise argparse.ArgumentTypeError(f'"{text}" is not a percentage from 0 to 100')
    return int(text)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(_number(word) for word in text.split(","))


def _version(text: str) -> str:
    if not _VERSION.fullmatch(text):
        raise argparse.ArgumentTypeError(f'"{text}" is not a driver version; write for instance 550.163.01')
    return text


def _short_text(text: str) -> str:
    if len(text.encode()) > _LONGEST_TEXT:
        raise argparse.ArgumentTypeError(f"the text is longer than {_LONGEST_TEXT} bytes")
    return text


def _word(words: Mapping[str, int]) -> Callable[[str], int]:
    """Return a reader of one of these words."""

    def read(text: str) -> int:
        if text not in words:
            raise argparse.ArgumentTypeError(f'"{text}" is not one of: {", ".join(words)}')
        return words[text]

    return read


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line; `action` of the result is the command. Exits with status 2 when it is not understood."""
    parser = argparse.ArgumentParser(prog="gpusim", description="Control the simulated NVIDIA driver of this machine.")
    commands = parser.add_subparsers(dest="action", required=True, metavar="COMMAND")
    for add in (_add_init, _add_run, _add_busy, _add_set, _add_fail, _add_power, _add_devnodes, _add_status):
        add(commands)
    return parser.parse_args(argv)


def _add_init(commands: Commands) -> None:
    init = commands.add_parser("init", help="make a machine with these cards")
    init.add_argument(
        "--cards", required=True, metavar="NAME:COUNT[,NAME:COUNT]", help=", ".join(catalogue.model_names())
    )
    init.add_argument("--minors", type=_numbers, metavar="N,N", help="device minors in order of index, default 0,1,2")
    init.add_argument("--driver", type=_version, default="550.163.01", help="driver version (default %(default)s)")
    init.add_argument("--cuda", default="12.4", help="newest CUDA version it serves (default %(default)s)")
    init.add_argument(
        "--seed", type=_short_text, default="gpusim", help="makes UUIDs; the same seed gives the same UUIDs"
    )
    init.add_argument("--caps", type=_short_text, default="/dev/nvidia-caps", help="folder of the MIG capability nodes")
    init.add_argument("--persist", action="store_true", help="keep the cards over reboots (see gpusim-boot.service)")
    init.add_argument("--devnodes", action="store_true", help="make device nodes and /proc/driver too, also at boot")


def _add_run(commands: Commands) -> None:
    run_command = commands.add_parser("run", help="run a command as a process that uses a card")
    device = run_command.add_mutually_exclusive_group()
    device.add_argument("--gpu", metavar="N[,N]", help="card index; default: what CUDA_VISIBLE_DEVICES names, else 0")
    device.add_argument("--mig", metavar="UUID", help="a MIG device")
    run_command.add_argument("--mem", type=_mib, default=_mib("1G"), help="GPU memory, such as 20G (default 1G)")
    run_command.add_argument("--sm", type=_percent, default=0, help="utilisation in percent (default 0)")
    run_command.add_argument("--memory-load", type=_percent, default=0, help="memory utilisation in percent")
    run_command.add_argument("--kind", choices=["C", "G", "M"], default="C", help="compute, graphics, or MPS client")
    run_command.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND...")


def _add_busy(commands: Commands) -> None:
    busy = commands.add_parser("busy", help="change the load of a running process, or of a card without a process")
    whose = busy.add_mutually_exclusive_group(required=True)
    whose.add_argument("--gpu", type=_number, help="card index")
    whose.add_argument("--pid", type=_number, help="a process started with gpusim run")
    busy.add_argument("--sm", type=_percent, help="utilisation in percent")
    busy.add_argument("--memory-load", type=_percent, help="memory utilisation in percent")
    busy.add_argument("--mem", type=_mib, help="GPU memory, such as 20G")


def _add_set(commands: Commands) -> None:
    change = commands.add_parser("set", help="change a card")
    change.add_argument("--gpu", type=_number, required=True, help="card index")
    change.add_argument("--temperature", dest="temperature_c", type=_number, help="degrees Celsius; 0 follows the load")
    change.add_argument("--fan", dest="fan_percent", type=_percent, help="fan speed in percent")
    change.add_argument("--persistence", type=_word(_SWITCH), help="persistence mode, on or off")
    change.add_argument("--compute-mode", type=_word(_COMPUTE_MODES), help=", ".join(_COMPUTE_MODES))
    change.add_argument("--ecc-corrected", type=_number, help="corrected memory errors so far")
    change.add_argument("--ecc-uncorrected", type=_number, help="uncorrected memory errors so far")
    change.add_argument("--link-down", type=_number, metavar="LINK", help="take an NVLink down")


def _add_fail(commands: Commands) -> None:
    fail = commands.add_parser("fail", help="inject what real servers suffer")
    what = fail.add_mutually_exclusive_group(required=True)
    what.add_argument("--lost", action="store_true", help="card --gpu fell off the bus")
    what.add_argument(
        "--mismatch", type=_version, metavar="VERSION", help="the library is of this version, the kernel module is not"
    )
    what.add_argument("--unloaded", action="store_true", help="the kernel module is not loaded")
    what.add_argument("--call", metavar="NAME", help="this NVML call fails, on --gpu or on every card")
    what.add_argument("--clear", action="store_true", help="heal everything")
    fail.add_argument("--gpu", type=_number, help="card index")
    fail.add_argument("--error", choices=sorted(faults.ERRORS), default="unknown", help="what --call answers")


def _add_power(commands: Commands) -> None:
    commands.add_parser("boot", help="make the machine that init --persist noted down, as after power on")
    reset = commands.add_parser("reset", help="reset cards: pending MIG mode applied, instances gone")
    reset.add_argument("--gpu", type=_numbers, required=True, metavar="N[,N]", help="card indexes")

    commands.add_parser("reboot", help="what a reboot does to the cards")


def _add_devnodes(commands: Commands) -> None:
    nodes = commands.add_parser("devnodes", help="make the device nodes of cards and MIG instances")
    nodes.add_argument("--root", type=Path, default=Path("/dev"), help="folder for the nodes (default %(default)s)")
    nodes.add_argument("--proc", action="store_true", help="also show /proc/driver as the driver does (mounts there)")


def _add_status(commands: Commands) -> None:
    status = commands.add_parser("status", help="show the machine")
    status.add_argument("--json", action="store_true", help="as JSON")
