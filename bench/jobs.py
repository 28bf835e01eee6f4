"""Prints the processor time of a usage report on so many jobs, and that of csv.reader over the same lines of sacct."""

from __future__ import annotations

import csv
import random
import sys
import time

from gpulab.rules.usage import HOUR, Period, Stretch, Tally, Wait, Watch
from gpulab.rules.usage_jobs import parse, records
from gpulab.rules.windows import DEFAULT_TABLE, parse_windows

count = int(sys.argv[1])
period = Period(1_759_276_800, 1_759_276_800 + 61 * 24 * HOUR)
draw = random.Random(1)  # noqa: S311 - the same jobs each time
lines = []
for number in range(count):
    asked = draw.randrange(period.begin, period.end)
    start = asked + draw.randrange(2 * HOUR)
    end = start + draw.randrange(6 * HOUR)
    user, cards, node = draw.randrange(200), draw.choice((1, 1, 1, 2, 4)), draw.randrange(16)
    lines.append(f"{number}|member{user:03}|{asked}|{start}|{end}|cpu=8,gres/gpu={cards},mem=64G|gpu{node:02}")
text = "\n".join(lines)

began = time.process_time()
sums = Tally(period, parse_windows(DEFAULT_TABLE))
add = {Stretch: sums.had, Watch: sums.watched, Wait: sums.waited}
for each in records(parse(text), period.end, {f"gpu{node:02}": 8 for node in range(16)}):
    add[type(each)](each)  # type: ignore[operator, arg-type] # each its own
sums.total()
report = time.process_time() - began

began = time.process_time()
for _ in csv.reader(text.splitlines(), delimiter="|"):
    pass
print(report, time.process_time() - began)
