"""Whose MIG instance is which: rules, files, and the whole of it on a simulated machine."""

from __future__ import annotations

import os
import random
import stat
from collections import Counter

import pytest
from gpulab.errors import InputError
from gpulab.rules.cards import Card, Cards, MigDevice
from gpulab.rules.mig_bindings import Place, Wishes, check, counts_of, distribute, parse_place, parse_wishes, resolve
from gpulab.rules.mig_layout import parse_layout
from gpulab.services import bindings
from hypothesis import given
from hypothesis import strategies as st
from mig_machine import bare  # noqa: F401 - a fixture

SIGKILL = 9
LAYOUT = {"0": "3g.40gb,2g.20gb,1g.10gb"}

people = st.lists(st.sampled_from([f"member{number:02}" for number in range(1, 31)]), unique=True, max_size=30)
counts = st.dictionaries(st.integers(0, 3), st.integers(0, 7), max_size=4).filter(lambda found: any(found.values()))


@st.composite
def labs(draw):
    """Return instances of each card, members with an instance of their own, and members to spread."""
    cards, names = draw(counts), draw(people)
    places = [Place(card, number) for card, count in cards.items() for number in range(count)]
    cut = draw(st.integers(0, len(names)))
    fixed = {name: draw(st.sampled_from(places)) for name in names[:cut]}
    return cards, fixed, names[cut:]


def loads(cards, found):
    counted = Counter(found.values())
    return [counted[Place(card, number)] for card, count in cards.items() for number in range(count)]


@given(labs())
def test_everybody_gets_one_and_those_we_choose_are_spread_evenly(lab):
    cards, fixed, spread = lab
    found = distribute(Wishes(fixed, tuple(spread)), cards, {})
    assert set(found) == {*fixed, *spread}
    assert {user: found[user] for user in fixed} == fixed
    # Nobody of ours is where there are two people more than elsewhere.
    fewest = min(loads(cards, found))
    assert all(Counter(found.values())[found[user]] <= fewest + 1 for user in spread)


@given(labs(), st.randoms(use_true_random=False))
def test_the_order_of_the_list_plays_no_part(lab, shuffler):
    cards, fixed, spread = lab
    other = list(spread)
    shuffler.shuffle(other)
    assert distribute(Wishes(fixed, tuple(spread)), cards, {}) == distribute(Wishes(fixed, tuple(other)), cards, {})


@given(labs())
def test_who_joins_moves_nobody_and_who_leaves_at_most_one(lab):
    cards, fixed, spread = lab
    before = distribute(Wishes(fixed, tuple(spread)), cards, {})
    joined = distribute(Wishes(fixed, (*spread, "newcomer")), cards, before)
    assert {user: joined[user] for user in before} == before
    for leaver in spread:
        left = distribute(Wishes(fixed, tuple(name for name in spread if name != leaver)), cards, before)
        assert sum(left[user] != before[user] for user in left) <= 1


@given(labs())
def test_the_second_time_nothing_moves(lab):
    cards, fixed, spread = lab
    wishes = Wishes(fixed, tuple(spread))
    before = distribute(wishes, cards, {})
    assert distribute(wishes, cards, before) == before


def test_two_people_get_instances_on_two_cards():
    assert distribute(Wishes({}, ("bob", "carol")), {0: 2, 1: 2}, {}) == {"bob": Place(0, 0), "carol": Place(1, 0)}


def test_an_instance_that_is_gone_is_nobodys_past():
    found = distribute(Wishes({}, ("bob", "carol")), {0: 2}, {"bob": Place(0, 6), "carol": Place(0, 1)})
    assert found == {"bob": Place(0, 0), "carol": Place(0, 1)}


@pytest.mark.parametrize(
    "text", ["mig-0", "mig-0-1-2", "MIG-0-1", "mig-00-1", "mig--1-0", "0-1", "gpu0", 0, True, ["mig-0-1"], "mig-0-٣"]
)
def test_what_is_no_instance_is_refused(text):
    with pytest.raises(ValueError, match="give an instance as mig-CARD-INSTANCE, such as mig-0-1, or none"):
        parse_place(text)
    with pytest.raises(InputError, match=r"lab_members, member bob: gpu is .*; give an instance"):
        parse_wishes({"bob": text}, spread=False)


def test_none_keeps_out_of_the_spread():
    wishes = parse_wishes({"alice": "none", "bob": "mig-0-1", "carol": "", "dan": None}, spread=True)
    assert wishes == Wishes({"bob": Place(0, 1)}, ("carol", "dan"))
    assert not parse_wishes({"alice": "none", "carol": ""}, spread=False)


@pytest.mark.parametrize("name", ["a b", "", "Bob", 7, "x\ny"])
def test_a_name_that_is_no_account_is_refused(name):
    with pytest.raises(InputError, match="is no account name; give those of lab_members"):
        parse_wishes({name: "mig-0-1"}, spread=False)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("mig-2-0", "gpu is mig-2-0; mig_layout has no card 2; add it there, or give another gpu"),
        ("mig-1-0", "gpu is mig-1-0; mig_layout makes no instance on card 1; make some, or give another gpu"),
        ("mig-0-3", "gpu is mig-0-3; mig_layout makes only mig-0-0 to mig-0-2 there; choose one, or give another gpu"),
    ],
)
def test_an_instance_that_the_layout_does_not_make_is_refused(place, message):
    layout = counts_of(parse_layout({**LAYOUT, "1": "off"}))
    with pytest.raises(InputError, match=f"^lab_members, member bob: {message}$"):
        check(parse_wishes({"bob": place}, spread=False), layout)


def test_a_spread_over_nothing_is_refused():
    with pytest.raises(InputError, match="mig_spread is true and mig_layout makes no instance"):
        check(Wishes({}, ("bob",)), {0: 0})


def test_a_layout_for_whatever_cards_there_are_is_known_only_with_them():
    every = {"version": "v1", "mig-configs": {"a": [{"devices": "all", "mig-enabled": False}]}}
    assert counts_of(parse_layout(every)) is None
    assert counts_of(parse_layout({"0": "off", "1": "1g.10gb,1g.10gb"})) == {0: 0, 1: 2}


def card(index, *uuids):
    devices = tuple(MigDevice(number, uuid, "1g.10gb", 7 + number, 0, None, None) for number, uuid in enumerate(uuids))
    return Card(index, uuid=f"GPU-{index}", mig_devices=devices)


def test_a_name_becomes_the_uuid_of_now():
    places = {"bob": Place(0, 1), "carol": Place(1, 0), "dan": Place(1, 1)}
    assert resolve(places, [card(0, "MIG-a", "MIG-b"), card(1, "MIG-c")]) == {"bob": "MIG-b", "carol": "MIG-c"}


# --- Files ------------------------------------------------------------------------------------------------------------


def keep(root, places, *cards, reason="", **options):
    return bindings.keep(root, places, lambda: Cards(cards=cards, reason=reason), **options)


def test_everybody_reads_who_has_which_also_under_a_strict_umask(tmp_path):
    old = os.umask(0o077)
    try:
        assert keep(tmp_path, {"bob": Place(0, 0)}, card(0, "MIG-a")).changed
    finally:
        os.umask(old)
    path = tmp_path / "run/gpulab/bindings"
    assert path.read_text() == "bob MIG-a\n"
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o644, 0o755]
    assert bindings.binding_of(tmp_path, "bob") == "MIG-a"
    assert bindings.binding_of(tmp_path, "carol") is None


def test_the_second_time_nothing_is_written(tmp_path):
    keep(tmp_path, {"bob": Place(0, 0)}, card(0, "MIG-a"))
    files = [tmp_path / "run/gpulab/bindings", tmp_path / "etc/gpulab/bindings.json"]
    before = [path.stat().st_ino for path in files]
    assert not keep(tmp_path, {"bob": Place(0, 0)}, card(0, "MIG-a")).changed
    assert [path.stat().st_ino for path in files] == before


def test_a_plan_writes_nothing_and_says_what_would_change(tmp_path):
    planned = keep(tmp_path, {"bob": Place(0, 0)}, card(0, "MIG-a"), dry_run=True)
    assert (planned.changed, planned.before, planned.after) == (True, (), ("bob mig-0-0 MIG-a",))
    assert not list(tmp_path.iterdir())


def test_after_a_change_the_note_gives_the_new_uuids(tmp_path):
    keep(tmp_path, {"bob": Place(0, 0), "carol": Place(0, 1)}, card(0, "MIG-a", "MIG-b"))
    found = keep(tmp_path, None, card(0, "MIG-c"))
    assert bindings.read_bindings(tmp_path) == {"bob": "MIG-c"}
    assert found.missing == ("carol is bound to mig-0-1, which is not there now; until it is, carol gets no instance",)


def test_cards_that_cannot_be_read_leave_the_uuids_as_they_are(tmp_path):
    keep(tmp_path, {"bob": Place(0, 0)}, card(0, "MIG-a"))
    assert not keep(tmp_path, None, reason="the driver does not answer").changed
    assert bindings.binding_of(tmp_path, "bob") == "MIG-a"


def test_nobody_bound_leaves_no_file_and_does_not_look_at_the_cards(tmp_path):
    keep(tmp_path, {"bob": Place(0, 0)}, card(0, "MIG-a"))
    assert bindings.keep(tmp_path, {}, lambda: pytest.fail("looked")).changed
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not bindings.keep(tmp_path, {}, lambda: pytest.fail("looked")).changed


@pytest.mark.parametrize("content", ["", "{", "[]", '{"bob": 7}', '{"bob": ["mig-0-0"]}', "\udcff"])
def test_a_damaged_note_binds_nobody(tmp_path, content):
    path = tmp_path / "etc/gpulab/bindings.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content.encode(errors="surrogateescape"))
    assert bindings.read_places(tmp_path) == {}


def test_a_link_in_place_of_the_file_is_replaced_and_not_followed(tmp_path):
    path = tmp_path / "run/gpulab/bindings"
    path.parent.mkdir(parents=True)
    (tmp_path / "victim").write_text("bob MIG-a\n")
    path.symlink_to(tmp_path / "victim")
    assert bindings.read_bindings(tmp_path) == {}
    keep(tmp_path, {"bob": Place(0, 0)}, card(0, "MIG-b"))
    assert (path.is_symlink(), path.read_text()) == (False, "bob MIG-b\n")
    assert (tmp_path / "victim").read_text() == "bob MIG-a\n"


# --- On a simulated machine -------------------------------------------------------------------------------------------


@pytest.fixture
def machine(bare):  # noqa: F811
    bare.gpusim("init", "--cards", "a100-sxm4-80gb:2")
    return bare


def seen(machine):
    return bindings.read_bindings(machine.root)


def instances(machine, number=0):
    """Return the UUIDs of a card's MIG devices in NVML's order, as `gpulab info` shows them."""
    cards = machine.ask("info", [])["answer"]["cards"]
    return [device["uuid"] for device in cards[number]["mig_devices"]]


def test_instances_are_numbered_as_nvml_numbers_them(machine):
    answer = machine.bind(LAYOUT, {"alice": "mig-0-0", "bob": "mig-0-1", "carol": "mig-0-2"})["answer"]
    assert [entry["uuid"] for entry in answer["bindings"]] == instances(machine)
    assert list(seen(machine).values()) == instances(machine)


def test_uuids_follow_a_new_layout_and_a_reboot(machine):
    machine.bind(LAYOUT, {"bob": "mig-0-0", "carol": "mig-0-2"})
    first = seen(machine)
    machine.bind({"0": "7g.80gb"}, {"bob": "mig-0-0"})
    assert seen(machine) == {"bob": instances(machine)[0]}
    assert seen(machine)["bob"] != first["bob"]
    second = seen(machine)
    machine.gpusim("reboot")
    (machine.root / "run/gpulab/bindings").unlink()
    answer = machine.ask("gpulab", ["apply", "--boot"])
    assert seen(machine) == {"bob": instances(machine)[0]}
    assert seen(machine) != second
    assert f"bob has mig-0-0: {seen(machine)['bob']}" in answer["printed"]


def test_a_wish_that_cannot_be_had_touches_nothing(machine):
    before = machine.snapshot()
    for action in ("plan", "apply"):
        answer = machine.bind(LAYOUT, {"bob": "mig-0-3"}, action=action)
        assert answer["kind"] == "InputError"
        assert machine.bind(LAYOUT, {"bob": "mig-1-0"}, action=action)["kind"] == "InputError"
    assert machine.snapshot() == before
    assert not (machine.root / "etc").exists()


def test_a_card_in_use_keeps_its_instances_and_its_people(machine):
    machine.bind(LAYOUT, {"bob": "mig-0-2"})
    before = seen(machine)
    machine.start("--mig", before["bob"])
    answer = machine.bind({"0": "7g.80gb", "1": "7g.80gb"}, {"bob": "mig-0-0", "carol": "mig-1-0"})["answer"]
    assert [each["result"] for each in answer["cards"]] == ["refused", "changed"]
    assert seen(machine) == {"bob": instances(machine)[0], "carol": instances(machine, 1)[0]}


def test_killed_at_any_call_the_next_run_binds_to_what_is_there(machine):
    machine.bind(LAYOUT, {"bob": "mig-0-0"})
    start = machine.snapshot()
    other = {"0": "4g.40gb,1g.10gb"}
    names = machine.calls(lambda **traced: machine.bind(other, {"bob": "mig-0-1"}, **traced))
    for number in sorted(random.Random(7).sample(range(1, len(names) + 1), 12)):
        machine.restore(start)
        killed = machine.bind(other, {"bob": "mig-0-1"}, GPUSIM_KILL_AT=str(number))
        assert killed == {"killed": SIGKILL}, number
        assert machine.bind(other, {"bob": "mig-0-1"})["answer"]["bindings"][0]["uuid"] == instances(machine)[1]
        assert seen(machine) == {"bob": instances(machine)[1]}


def test_a_second_run_changes_nothing(machine):
    machine.bind(LAYOUT, {"alice": "none", "bob": "mig-0-0", "carol": ""}, spread=True)
    again = machine.bind(LAYOUT, {"alice": "none", "bob": "mig-0-0", "carol": ""}, spread=True)["answer"]
    assert again["changed"] is False
    assert [entry["user"] for entry in again["bindings"]] == ["bob", "carol"]
