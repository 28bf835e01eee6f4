"""Looks made up for tests of idle reclaim: who did how much, minute by minute."""

from __future__ import annotations

from gpulab.rules.samples import OK, CardSample, Hold, Runner, Tick, Use

T0 = 1_800_000_000
MINUTE = 60
GIB = 1 << 30


def runner(pid=100, user="bob", uid=1001, command="python", start=5000, lease=None):
    return Runner(pid, start, uid, user, command, lease)


def card(index, state=OK):
    return CardSample(index, f"GPU-{index}", state, 0, GIB, 80 * GIB)


def use(sm, who=None, index=0, memory=GIB, cpu_ms=0):
    return Use(who or runner(), index, memory=memory, sm=sm, cpu_ms=cpu_ms)


def look(minute, *uses, cards=(OK, OK), holds=(), reason=""):
    at = round(T0 + minute * MINUTE)
    seen = () if reason else tuple(card(index, state) for index, state in enumerate(cards))
    return Tick(at, seen, uses, holds, reason)


def looks(*loads, who=None, first=0):
    """Return looks a minute apart at which one process had these loads: a number, None (unknown), or `-` (no look)."""
    return tuple(look(first + minute, use(load, who)) for minute, load in enumerate(loads) if load != "-")


def hold(lease=7, who=None, index=0):
    return Hold(lease, who or runner(900, lease=lease), index)
