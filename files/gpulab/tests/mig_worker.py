"""A process that does MIG work on a simulated machine, each piece of it in a child of its own.

The tests themselves never load NVIDIA's library: other tests of the same run must find no driver. And what is to be
killed at its fifth call must be a process. Requests and answers are JSON, a line each.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import json
import os
import sys
import traceback
from pathlib import Path

import pynvml
from gpulab.adapters.nvml import read_cards
from gpulab.commands import mig as gpulab
from gpulab.errors import GpulabError
from gpulab.rules.cards import to_dict
from gpulab.rules.mig_bindings import parse_wishes
from gpulab.rules.mig_layout import parse_layout
from gpulab.services import mig
from gpusim import main as simulator


def survey(index):
    """Find every set of profiles of which a card takes instances, one after the other, in some order.

    Walks through all the states the card can get into when it chooses the places itself. Returns the sets, each as a
    sorted list of profile ids, and the profiles as the card names them.
    """
    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByIndex(index)
    assert pynvml.nvmlDeviceSetMigMode(card, pynvml.NVML_DEVICE_MIG_ENABLE) == 0
    profiles = {}
    for slot in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        with contextlib.suppress(pynvml.NVMLError_NotSupported):
            info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(card, slot)
            profiles[info.id] = info.name.removeprefix("MIG ")
    seen, found = set(), set()

    def walk(state):
        for profile in profiles:
            try:
                instance = pynvml.nvmlDeviceCreateGpuInstance(card, profile)
            except pynvml.NVMLError_InsufficientResources:
                continue
            larger = state | {(profile, pynvml.nvmlGpuInstanceGetInfo(instance).placement.start)}
            if larger not in seen:
                seen.add(larger)
                found.add(tuple(sorted(profile for profile, _ in larger)))
                walk(larger)
            pynvml.nvmlGpuInstanceDestroy(instance)

    walk(frozenset())
    return {"sets": sorted(found), "profiles": profiles}


def run(action, root, arguments):
    world = mig.World(root=Path(root))
    if action == "gpusim":
        return simulator.main(arguments)
    if action == "gpulab":
        return gpulab.main(arguments, world)
    if action == "info":
        return to_dict(read_cards())
    if action == "survey":
        return survey(arguments)
    layout = parse_layout(arguments["layout"], label=arguments.get("label", ""))
    options = {key: value for key, value in arguments.items() if key not in {"layout", "label", "bindings", "spread"}}
    if "bindings" in arguments:
        options["wishes"] = parse_wishes(arguments["bindings"], spread=arguments["spread"])
    return mig.to_dict(getattr(mig, action)(layout, world, **options))


def answer(request):
    os.environ.update(request["environment"])
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            result = {"answer": run(request["action"], request["root"], request["arguments"])}
    except GpulabError as error:
        result = {"error": str(error), "kind": type(error).__name__}
    except SystemExit as ended:
        result = {"exit": ended.code}
    except Exception:  # noqa: BLE001 - whatever it is, the test is told
        result = {"crash": traceback.format_exc()}
    return json.dumps({**result, "printed": printed.getvalue()})


def main():
    ctypes.CDLL("libnvidia-ml.so.1")  # the children find it loaded; it is not started here
    gc.disable()  # each child shares the parent's memory as long as nobody walks through it
    gc.freeze()
    for line in sys.stdin:
        inward, outward = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(outward, answer(json.loads(line)).encode())
            os._exit(0)
        os.close(outward)
        with open(inward, "rb") as stream:
            text = stream.read().decode()
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            text = json.dumps({"killed": os.WTERMSIG(status)})
        print(text, flush=True)


if __name__ == "__main__":
    main()
