"""The commands of gpusim: what is asked for on the command line, carried out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from . import arguments, boot, devnodes, faults, hardware, power, processes, records, report, start, store
from .errors import GpusimError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def _init(options: argparse.Namespace) -> None:
    plan = hardware.Plan(
        models=hardware.parse_cards(options.cards),
        minors=options.minors or (),
        driver=options.driver,
        cuda=options.cuda,
        seed=options.seed,
        caps=options.caps,
        inforom=boot.inforom() if options.persist else "",
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
    names = ("temperature_c", "fan_percent", "persistence", "compute_mode", "ecc_corrected", "ecc_uncorrected")
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


_ACTIONS = {
    "init": _init,
    "boot": _boot,
    "run": _run,
    "busy": _busy,
    "set": _set,
    "fail": _fail,
    "reset": _reset,
    "reboot": _reboot,
    "devnodes": _devnodes,
    "status": _status,
}


def main(argv: Sequence[str]) -> int:
    """Carry out one command and return its exit status."""
    options = arguments.parse(argv)
    try:
        _ACTIONS[options.action](options)
    except GpusimError as error:
        print(f"gpusim: {error}", file=sys.stderr)
        return 1
    return 0


def run() -> None:
    """Entry of the program."""
    sys.exit(main(sys.argv[1:]))
