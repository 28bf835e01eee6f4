"""The command line of gpusim."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from . import boot, catalogue, devnodes, faults, hardware, power, processes, records, report, start, store
from .errors import GpusimError

_SIZE = re.compile(r"(\d+(?:\.\d+)?)([MG])(?:iB)?")
_UNITS = {"M": 1, "G": 1024}
_COMPUTE_MODES = {"default": 0, "prohibited": 2, "exclusive-process": 3}
_SWITCH = {"off": 0, "on": 1}


def _mib(text: str) -> int:
    """Read a size such as 20G or 512M as MiB."""
    match = _SIZE.fullmatch(text)
    if not match:
        raise argparse.ArgumentTypeError(f'"{text}" is not a size; write for instance 20G or 512M')
    return int(float(match[1]) * _UNITS[match[2]])


def _percent(text: str) -> int:
    if not text.isdecimal() or int(text) > 100:  # noqa: PLR2004 - a percentage
        raise argparse.ArgumentTypeError(f'"{text}" is not a percentage from 0 to 100')
    return int(text)


def _numbers(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f'"{text}" is not a list of numbers; write for instance 0,2')
    return tuple(int(word) for word in words)


def _init(options: argparse.Namespace) -> None:
    plan = hardware.Plan(
        models=hardware.parse_cards(options.cards),
        minors=options.minors or (),
        driver=options.driver,
        cuda=options.cuda,
        seed=options.seed,
        caps=options.caps,
        inforom=boot.INFOROM if options.persist else "",
        devnodes=options.devnodes,
    )
    machine = hardware.build(plan)
    if options.persist:
        boot.save(plan)
    _start(plan, machine)


def _boot(_options: argparse.Namespace) -> None:
    plan = boot.load()
    machine = hardware.build(plan)
    power.reboot(machine)
    _start(plan, machine)


def _start(plan: hardware.Plan, machine: records.Machine) -> None:
    store.create(machine)
    processes.forget_all()
    if plan.devnodes:
        devnodes.make(machine, Path("/dev"))
        devnodes.mount_proc(machine)


def _run(options: argparse.Namespace) -> None:
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise GpusimError("no command given; write for instance: gpusim run --gpu 0 --mem 20G -- sleep 600")
    use = processes.Use(0, options.mem, options.sm, options.memory_load, kind=options.kind)
    start.lock_and_reserve(options.gpu, options.mig, use)
    start.execute(command)


def _busy(options: argparse.Namespace) -> None:
    changes = {"sm": options.sm, "memory": options.memory_load, "mib": options.mem}
    changes = {key: value for key, value in changes.items() if value is not None}
    if options.pid is not None:
        processes.change(options.pid, changes)
        return
    keys = {"sm": "busy_sm", "memory": "busy_memory", "mib": "busy_mib"}
    with store.changing() as machine:
        machine.card(options.gpu).update({keys[key]: str(value) for key, value in changes.items()})


def _set(options: argparse.Namespace) -> None:
    names = ("temperature_c", "fan_percent", "persistence", "compute_mode", "ecc_corrected", "ecc_uncorrected", "minor")
    changes = {name: str(getattr(options, name)) for name in names if getattr(options, name) is not None}
    with store.changing() as machine:
        card = machine.card(options.gpu)
        card.update(changes)
        if options.link_down is not None:
            link = machine.one("link", card=options.gpu, number=options.link_down)
            if link is None:
                raise GpusimError(f"card {options.gpu} has no NVLink {options.link_down}")
            link["active"] = "0"


def _fail(options: argparse.Namespace) -> None:
    with store.changing() as machine:
        if options.clear:
            faults.clear(machine)
        elif options.lost:
            if options.gpu is None:
                raise GpusimError("--lost needs the card: --gpu N")
            faults.lose(machine, options.gpu)
        elif options.mismatch is not None:
            faults.mismatch(machine, options.mismatch)
        elif options.unloaded:
            faults.unload(machine)
        else:
            card = faults.ANY_CARD if options.gpu is None else str(options.gpu)
            faults.fail_call(machine, options.call, card, options.error)


def _reset(options: argparse.Namespace) -> None:
    with store.changing() as machine:
        for index in options.gpu:
            power.reset(machine, machine.card(index))


def _reboot(_options: argparse.Namespace) -> None:
    with store.changing() as machine:
        power.reboot(machine)
    processes.forget_all()


def _devnodes(options: argparse.Namespace) -> None:
    machine = store.read()
    for path in devnodes.make(machine, options.root):
        print(path)
    if options.proc:
        devnodes.mount_proc(machine)


def _status(options: argparse.Namespace) -> None:
    machine = store.read()
    print(report.as_json(machine) if options.json else report.as_text(machine))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpusim", description="Control the simulated NVIDIA driver of this machine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    init = commands.add_parser("init", help="make a machine with these cards")
    init.add_argument(
        "--cards", required=True, metavar="NAME:COUNT[,NAME:COUNT]", help=", ".join(catalogue.model_names())
    )
    init.add_argument("--minors", type=_numbers, metavar="N,N", help="device minors in order of index, default 0,1,2")
    init.add_argument("--driver", default="550.163.01", help="driver version (default %(default)s)")
    init.add_argument("--cuda", default="12.4", help="newest CUDA version it serves (default %(default)s)")
    init.add_argument("--seed", default="gpusim", help="makes UUIDs; the same seed gives the same UUIDs")
    init.add_argument("--caps", default="/dev/nvidia-caps", help="folder of the MIG capability nodes")
    init.add_argument("--persist", action="store_true", help="keep the cards over reboots (see gpusim-boot.service)")
    init.add_argument("--devnodes", action="store_true", help="make device nodes and /proc/driver too, also at boot")
    init.set_defaults(action=_init)

    again = commands.add_parser("boot", help="make the machine that init --persist noted down, as after power on")
    again.set_defaults(action=_boot)

    run_command = commands.add_parser("run", help="run a command as a process that uses a card")
    device = run_command.add_mutually_exclusive_group()
    device.add_argument("--gpu", metavar="N[,N]", help="card index; default: what CUDA_VISIBLE_DEVICES names, else 0")
    device.add_argument("--mig", metavar="UUID", help="a MIG device")
    run_command.add_argument("--mem", type=_mib, default=_mib("1G"), help="GPU memory, such as 20G (default 1G)")
    run_command.add_argument("--sm", type=_percent, default=0, help="utilisation in percent (default 0)")
    run_command.add_argument("--memory-load", type=_percent, default=0, help="memory utilisation in percent")
    run_command.add_argument("--kind", choices=["C", "G", "M"], default="C", help="compute, graphics, or MPS client")
    run_command.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND...")
    run_command.set_defaults(action=_run)

    busy = commands.add_parser("busy", help="change the load of a running process, or of a card without a process")
    whose = busy.add_mutually_exclusive_group(required=True)
    whose.add_argument("--gpu", type=int, help="card index")
    whose.add_argument("--pid", type=int, help="a process started with gpusim run")
    busy.add_argument("--sm", type=_percent, help="utilisation in percent")
    busy.add_argument("--memory-load", type=_percent, help="memory utilisation in percent")
    busy.add_argument("--mem", type=_mib, help="GPU memory, such as 20G")
    busy.set_defaults(action=_busy)

    change = commands.add_parser("set", help="change a card")
    change.add_argument("--gpu", type=int, required=True, help="card index")
    change.add_argument("--temperature", dest="temperature_c", type=int, help="degrees Celsius; 0 follows the load")
    change.add_argument("--fan", dest="fan_percent", type=_percent, help="fan speed in percent")
    change.add_argument("--persistence", type=_SWITCH.get, help="persistence mode, on or off")
    change.add_argument("--compute-mode", type=_COMPUTE_MODES.get, help=", ".join(_COMPUTE_MODES))
    change.add_argument("--ecc-corrected", type=int, help="corrected memory errors so far")
    change.add_argument("--ecc-uncorrected", type=int, help="uncorrected memory errors so far")
    change.add_argument("--minor", type=int, help="device minor")
    change.add_argument("--link-down", type=int, metavar="LINK", help="take an NVLink down")
    change.set_defaults(action=_set)

    fail = commands.add_parser("fail", help="inject what real servers suffer")
    what = fail.add_mutually_exclusive_group(required=True)
    what.add_argument("--lost", action="store_true", help="card --gpu fell off the bus")
    what.add_argument("--mismatch", metavar="VERSION", help="the library is of this version, the kernel module is not")
    what.add_argument("--unloaded", action="store_true", help="the kernel module is not loaded")
    what.add_argument("--call", metavar="NAME", help="this NVML call fails, on --gpu or on every card")
    what.add_argument("--clear", action="store_true", help="heal everything")
    fail.add_argument("--gpu", type=int, help="card index")
    fail.add_argument("--error", choices=sorted(faults.ERRORS), default="unknown", help="what --call answers")
    fail.set_defaults(action=_fail)

    reset = commands.add_parser("reset", help="reset cards: pending MIG mode applied, instances gone")
    reset.add_argument("--gpu", type=_numbers, required=True, metavar="N[,N]", help="card indexes")
    reset.set_defaults(action=_reset)

    commands.add_parser("reboot", help="what a reboot does to the cards").set_defaults(action=_reboot)

    nodes = commands.add_parser("devnodes", help="make the device nodes of cards and MIG instances")
    nodes.add_argument("--root", type=Path, default=Path("/dev"), help="folder for the nodes (default %(default)s)")
    nodes.add_argument("--proc", action="store_true", help="also show /proc/driver as the driver does (mounts there)")
    nodes.set_defaults(action=_devnodes)

    status = commands.add_parser("status", help="show the machine")
    status.add_argument("--json", action="store_true", help="as JSON")
    status.set_defaults(action=_status)
    return parser


def main(argv: Sequence[str]) -> int:
    """Carry out one command and return its exit status."""
    options = _parser().parse_args(argv)
    try:
        options.action(options)
    except GpusimError as error:
        print(f"gpusim: {error}", file=sys.stderr)
        return 1
    return 0


def run() -> None:
    """Entry of the program."""
    sys.exit(main(sys.argv[1:]))
