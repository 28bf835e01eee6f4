"""Every set of profiles on every card of the simulator: valid exactly when the library makes it in some order."""

from __future__ import annotations

import csv
import itertools
import json

import pytest
from gpulab.rules.mig_check import find_problem, fits, layouts
from gpulab.rules.mig_known import known_profiles
from gpulab.rules.mig_layout import parse_layout
from mig_machine import REPOSITORY, bare  # noqa: F401 - a fixture

CARDS = list(csv.DictReader((REPOSITORY / "simulator/gpusim/data/cards.csv").open(encoding="utf-8")))
SPLITTABLE = [row["id"] for row in CARDS if row["mig_family"]]
MOST = 8
"""One more than any card has room for: larger sets contain one of these that does not fit."""


@pytest.mark.parametrize("name", SPLITTABLE)
def test_valid_is_what_the_library_accepts_in_some_order(bare, name):  # noqa: F811
    bare.gpusim("init", "--cards", f"{name}:1")
    answer = bare.ask("survey", 0)["answer"]
    accepted = {tuple(each) for each in answer["sets"]}
    (card,) = json.loads(bare.ask("gpulab", ["show", "--json"])["printed"])
    profiles = {each["id"]: each for each in card["profiles"]}
    assert card["measured"]
    assert {int(number): text for number, text in answer["profiles"].items()} == {
        number: each["name"] for number, each in profiles.items()
    }
    own = known_profiles(card["device_id"])
    # The documented table says the same as the card, so the same rules hold before and after MIG is switched on.
    assert {each.id: (each.name, each.slices, each.size, list(each.starts), each.maximum) for each in own} == {
        number: (each["name"], each["slices"], each["size"], each["starts"], each["maximum"])
        for number, each in profiles.items()
    }
    judged = 0
    for size in range(1, MOST + 1):
        for wanted in itertools.combinations_with_replacement(own, size):
            ids = tuple(sorted(profile.id for profile in wanted))
            assert fits(own, wanted) == (ids in accepted), [profile.name for profile in wanted]
            judged += 1
    assert judged > len(accepted) > 10
    assert {tuple(sorted(profile.id for profile in each)) for each in layouts(own)} == accepted
    for ids in accepted:
        text = ",".join(profiles[number]["name"] for number in ids)
        assert find_problem(own, parse_layout({0: text}).entries[0].target) == ""
