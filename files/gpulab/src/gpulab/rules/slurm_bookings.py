"""Bookings of the table tier as reservations of Slurm: which ones there shall be, and what is to be done for it.

A reservation of one GPU holds one GPU and its cores; the others stay free for everybody, also for jobs that are longer
than the time until it begins (Slurm 24.11, tried). With `Flags=MAGNETIC` its owner's jobs go in without being told to
(scontrol(1)). Which card it is, Slurm chooses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from .booking import Booking

PREFIX = "booking-"


@dataclass(frozen=True)
class Plan:
    """What brings sheet and reservations into step.

    Attributes:
        make: bookings without a reservation, by its name.
        remove: reservations without a booking.
        cancel: line numbers of bookings whose reservation was taken away: it is the scheduler's word that counts.
        known: the reservations there are afterwards.
    """

    make: Mapping[str, Booking]
    remove: tuple[str, ...]
    cancel: tuple[int, ...]
    known: tuple[str, ...]


def name_of(booking: Booking) -> str:
    """Name a booking's reservation; another one as soon as anything about it differs."""
    minutes = (booking.end - booking.start).total_seconds() / 60
    return f"{PREFIX}{booking.user}-gpu{booking.gpu_id}-{booking.start:%Y%m%d%H%M}-{minutes:.0f}min"


def plan(
    rows: Mapping[int, Booking], there: Collection[str], made: Collection[str], now: datetime, *, leave: bool = False
) -> Plan:
    """Compare.

    Args:
        rows: the sheet's good rows by line number.
        there: names of the reservations that Slurm has.
        made: names of those that were made before; one of them that is gone was taken away by somebody.
        now: server time, naive.
        leave: Slurm goes away: no reservation shall be left.
    """
    ours = {name for name in there if name.startswith(PREFIX)}
    make: dict[str, Booking] = {}
    cancel, wanted = [], set()
    for line, booking in rows.items():
        if not booking.active or booking.end <= now:
            continue
        name = name_of(booking)
        if name in made and name not in ours:
            cancel.append(line)
            continue
        wanted.add(name)
        if name not in ours and not leave:
            make[name] = booking
    remove = ours if leave else ours - wanted
    return Plan(make, tuple(sorted(remove)), tuple(cancel), tuple(sorted((ours - remove) | make.keys())))


def creation(name: str, booking: Booking, now: datetime) -> list[str]:
    """Return the arguments of `scontrol create reservation`; one that has begun begins now.

    Running jobs do not stand in its way: it gets its card when they end.
    """
    begin = "now" if booking.start <= now else f"{booking.start:%Y-%m-%dT%H:%M:00}"
    return [
        f"ReservationName={name}",
        f"Users={booking.user}",
        f"StartTime={begin}",
        f"EndTime={booking.end:%Y-%m-%dT%H:%M:00}",
        "TRES=gres/gpu=1",
        "Flags=MAGNETIC",
    ]


def names(lines: Iterable[str]) -> list[str]:
    """Read the names from `scontrol --oneliner show reservation`."""
    return [
        field.partition("=")[2]
        for line in lines
        for field in line.split(maxsplit=1)[:1]
        if field.startswith("ReservationName=")
    ]
