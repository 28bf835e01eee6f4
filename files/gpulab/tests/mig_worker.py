"""A process that does MIG work on a simulated machine, each piece of it in a child of its own.

The tests themselves never load NVIDIA's library: other tests of the same run must find no driver. And what is to be
killed at its fifth call must be a process. Requests and answers are JSON, a line each.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import sys
import traceback
from pathlib import Path

import pynvml
from gpulab.commands import main as gpulab
from gpulab.errors import GpulabError
from gpulab.rules.mig_layout import parse_layout
from gpulab.services import mig

from gpusim import main as simulator


def run(action, root, arguments):
    world = mig.World(root=Path(root))
    if action == "gpusim":
        return simulator.main(arguments)
    if action == "gpulab":
        os.environ["GPULAB_TEST_ROOT"] = root
        return gpulab.main(arguments)
    layout = parse_layout(arguments["layout"], label=arguments.get("label", ""))
    options = {key: value for key, value in arguments.items() if key not in {"layout", "label"}}
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
    except BaseException:  # what it is, the test is told
        result = {"crash": traceback.format_exc()}
    return json.dumps({**result, "printed": printed.getvalue()})


def main():
    ctypes.CDLL("libnvidia-ml.so.1")  # the children find it loaded; it is not started here
    assert pynvml.__file__
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
