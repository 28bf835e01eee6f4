"""Idle cards and golden hours."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .asking import GPULAB, claim, same, same_settings

if TYPE_CHECKING:
    from server import Server


_IDLE = (
    "A process that stays below <percent> % for <idle> minutes while it holds memory on a card: you get a mail and a "
    "line on your terminal. Still need it? `gpu-keep` (at most <keep> hours at a time). No answer within <answer> "
    "minutes: "
)


@claim(_IDLE + "the admin hears of it. The server ends nothing by itself.")
def _notify(server: Server, words: dict[str, str]) -> None:
    _reclaim(server, "notify", words)


@claim(
    _IDLE + "the process is asked to end (TERM) and ended <grace> seconds later, and the card is free again. Save your "
    "checkpoint on TERM."
)
def _enforce(server: Server, words: dict[str, str]) -> None:
    _reclaim(server, "enforce", words)
    same_settings(server, "reclaim", words, grace="grace_seconds")


def _reclaim(server: Server, mode: str, words: dict[str, str]) -> None:
    same("the mode", mode, server.settings["reclaim"]["mode"])
    keys = {"percent": "percent", "idle": "idle_minutes", "keep": "keep_max_hours", "answer": "answer_minutes"}
    same_settings(server, "reclaim", words, **keys)
    assert server.host.service("gpulab-sampler.service").is_running, "the sampler does not run"


@claim(
    "Where the driver cannot tell how busy a process is (MIG instances, some cards), it counts as unknown, never as "
    "idle."
)
def _unknown(server: Server, _: dict[str, str]) -> None:
    cards = server.document(f"{GPULAB} info --json")["cards"]
    split = {card["index"] for card in cards if card["mig_enabled"]}
    for holder in server.document(f"{GPULAB} reclaim --status --json")["holders"]:
        judged = holder["state"] in {"idle", "warn", "warned", "overdue"}
        assert not (judged and split.issuperset(holder["cards"])), f"process {holder['pid']} is {holder['state']}"


@claim("| <name> | <hours> | <days> | <kind> | <cards> | <longest> | <what> |")
@claim("| <name> | <hours> | <days> | <kind> | <cards> | <longest> | <weight> | <what> |")
def _window(server: Server, words: dict[str, str]) -> None:
    windows = {each["name"]: each for each in server.document(f"{GPULAB} windows --json")["windows"]}
    assert words["name"] in windows, "there is no such window"
    window = windows[words["name"]]
    longest = f"{window['max_hours']:g} h" if window["max_hours"] else "any"
    for key, found in {
        "hours": window["hours"],
        "kind": window["class"],
        "cards": str(window["max_cards"] or "any"),
        "longest": longest,
        "weight": f"{window['weight']:g}",
    }.items():
        same(f"its {key}", words.get(key, found), found)


_WINDOWS = "`gpulab windows` shows the table and which window it is now."
_JUDGED = (
    " A job is judged by the window it starts in, or, when it starts outside every window, by the first one it runs "
    "into. What began in its own window may run on through the next ones. Who asks for more cards or hours than the "
    "window allows "
)


@claim(_WINDOWS)
def _windows(server: Server, _: dict[str, str]) -> None:
    assert server.as_member("gpulab windows").rc == 0, "members cannot"
    assert server.host.service("gpulab-slurm-windows.timer").is_running, "nothing changes the classes on the hour"


@claim(_WINDOWS + _JUDGED + "gets a warning that says when the job fits.")
def _windows_warn(server: Server, _: dict[str, str]) -> None:
    same("what is done", "warn", server.settings["windows"]["on_break"])


@claim(_WINDOWS + _JUDGED + "is refused, and told when the job fits; admins are only warned.")
def _windows_refuse(server: Server, _: dict[str, str]) -> None:
    same("what is done", "refuse", server.settings["windows"]["on_break"])


@claim(
    "A job has a class: what you give with `--qos`, else `offline` for arrays, `short` when it is as small as the "
    "windows for short work allow, and `long` for the rest. The class of the window of now goes first, among waiting "
    "jobs too. What does not fit the window is queued, not turned away, and starts when the window has ended; running "
    "jobs go on. The weight of the window in which you submit stays with the job (`sprio`, column SITE)."
)
def _classes(server: Server, _: dict[str, str]) -> None:
    # --test-only: says when the job would start, and submits nothing (sbatch(1)).
    for name, options in {"short": "--time=1", "offline": "--time=1 --array=1-2", "": "--time=1 --qos=long"}.items():
        answer = server.as_member(f"sbatch --test-only --gres=gpu:1 {options} --wrap true")
        assert answer.rc == 0, f"a job with {options} is turned away: {answer.stderr.strip()[-200:]}"
        assert re.search(rf"(class|任务类别) {name}", answer.stderr) or not name, f"a job with {options} is not {name}"
