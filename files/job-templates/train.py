#!/usr/bin/env python3
"""What a program that can be stopped looks like: saves its state on USR1 or TERM, begins where it left off.

Put your training step where the loop sleeps; with PyTorch, save model, optimizer and epoch with torch.save.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

STATE = Path(os.environ.get("STATE", "state"))
STEPS = int(os.environ.get("STEPS", "1000"))
stopping = False


def stop(_signal: int, _frame: FrameType | None) -> None:
    """Remember that we were told to stop; the loop ends after the step it is in."""
    global stopping  # noqa: PLW0603 - a signal handler has no other way to tell the loop
    stopping = True


def save(step: int) -> None:
    """Replace the state in one move: a job killed in between keeps the old one."""
    fresh = STATE.with_name(f"{STATE.name}.new")
    fresh.write_text(json.dumps({"step": step}), encoding="utf-8")
    fresh.replace(STATE)


def main() -> int:
    """Work through the steps."""
    signal.signal(signal.SIGUSR1, stop)
    signal.signal(signal.SIGTERM, stop)
    step = json.loads(STATE.read_text(encoding="utf-8"))["step"] if STATE.exists() else 0
    print(f"begins at step {step}", flush=True)
    while step < STEPS:
        time.sleep(1)  # the work of one step
        step += 1
        if stopping:
            save(step)
            print(f"saved at step {step}", flush=True)
            return 0
    print(f"finished at step {step}", flush=True)
    STATE.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
