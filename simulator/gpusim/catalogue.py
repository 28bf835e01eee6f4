"""What is kept as data (gpusim/data): card models, MIG profiles, compute instance profiles, exported names."""

from __future__ import annotations

import csv
import importlib.resources
from typing import TYPE_CHECKING

from .errors import GpusimError
from .records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

# nvmlDeviceArchitecture_t and nvmlBrandType_t of nvml.h
_ARCHITECTURES = {"ampere": 7, "ada": 8, "hopper": 9}
_BRANDS = {"nvidia": 14, "geforce": 5}
_NVIDIA_VENDOR_ID = 0x10DE


def _lines(name: str) -> list[str]:
    return (importlib.resources.files(__package__) / "data" / name).read_text(encoding="utf-8").splitlines()


def _rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(_lines(name)))


def symbols() -> dict[str, str]:
    """Return the names of all exported functions, each with the name under which faults and traces know it."""
    words = [line.split() for line in _lines("symbols.txt") if not line.startswith("#")]
    return {names[0]: names[-1] for names in words}


def model_names() -> list[str]:
    """Return the names that `gpusim init --cards` knows."""
    return [row["id"] for row in _rows("cards.csv")]


def model(name: str) -> Record:
    """Return the model record of a card by its name.

    Raises:
        GpusimError: the tables have no such card.
    """
    for row in _rows("cards.csv"):
        if row["id"] == name:
            ids = {key: int(row[key], 16) << 16 | _NVIDIA_VENDOR_ID for key in ("device_id", "subsystem_id")}
            numbers = {"architecture": _ARCHITECTURES[row["architecture"]], "brand": _BRANDS[row["brand"]]}
            return Record("model", {**row, **ids, **numbers})
    raise GpusimError(f'there is no card model "{name}"; known are {", ".join(model_names())}')


def profiles(families: Iterable[str]) -> list[Record]:
    """Return the GPU instance profiles of some MIG families and, when there are any, all compute instance profiles."""
    wanted = set(families)
    gpu = [Record("profile", _with_commas(row)) for row in _rows("mig-profiles.csv") if row["family"] in wanted]
    compute = [Record("ciprofile", _with_commas(row)) for row in _rows("compute-profiles.csv")]
    return gpu + compute if gpu else []


def _with_commas(row: dict[str, str]) -> dict[str, str]:
    return {**row, "starts": row["starts"].replace(" ", ",")}
