"""Judging and planning MIG layouts, with the documented profiles of cards as data."""

from __future__ import annotations

import itertools
import time

import pytest
from gpulab.rules.mig_assign import assign
from gpulab.rules.mig_cards import Compute, Goal, Instance, MigCard
from gpulab.rules.mig_check import find_problem, fits, layouts, nearest
from gpulab.rules.mig_fit import Shape, arrange, place
from gpulab.rules.mig_known import known_profiles
from gpulab.rules.mig_layout import parse_layout
from gpulab.rules.mig_plan import choose, describe, foresee, steps
from hypothesis import given, settings
from hypothesis import strategies as st

A100_40, A100_80, A30, H200 = 0x20B010DE, 0x20B210DE, 0x20B710DE, 0x233510DE


def target(text):
    """Return what the short form asks of one card."""
    return parse_layout({0: text}).entries[0].target


def card(index=0, device=A100_80, instances=(), *, enabled=True, name="NVIDIA A100-SXM4-80GB", **fields):
    return MigCard(
        index,
        f"GPU-{index}",
        name,
        device,
        capable=fields.pop("capable", True),
        enabled=enabled,
        pending=fields.pop("pending", enabled),
        profiles=known_profiles(device),
        measured=True,
        instances=tuple(instances),
        **fields,
    )


def made(name, start, *computes, device=A100_80):
    """Return an instance as it is on a card, with one compute instance over all of it unless told otherwise."""
    profile = next(each for each in known_profiles(device) if each.name == name)
    inside = tuple(Compute(width, at, number) for number, (width, at) in enumerate(computes or ((profile.slices, 0),)))
    return Instance(profile.id, name, profile.slices, start, profile.size, inside, id=start)


def texts(found):
    return [step.text for step in found]


SEED = "1G.10gb,3G.20gb,3G.20gb"


@pytest.mark.parametrize(
    ("device", "message"),
    [
        (
            A100_40,
            (
                "1G.10gb, 3G.20gb: profile names are lower case; 3g.20gb,3g.20gb,1g.10gb would not fit: "
                "it takes 10 memory slices of 8; nearest that fit: "
                "3g.20gb,2g.10gb,1g.10gb | 3g.20gb,3g.20gb | 3g.20gb,1g.10gb,1g.10gb"
            ),
        ),
        (
            A100_80,
            (
                "1G.10gb: profile names are lower case; 3G.20gb: the card has no 3g.20gb, its 3g profile is 3g.40gb; "
                "3g.40gb,3g.40gb,1g.10gb would not fit: it takes 9 memory slices of 8; nearest that fit: "
                "3g.40gb,3g.40gb | 3g.40gb,2g.20gb,1g.10gb | 4g.40gb,3g.40gb"
            ),
        ),
    ],
)
def test_the_recipe_from_the_web_is_refused_with_what_is_wrong_on_each_card(device, message):
    assert find_problem(known_profiles(device), target(SEED)) == message


@pytest.mark.parametrize(
    ("device", "text", "message"),
    [
        (A100_80, "4g.40gb,4g.40gb", "2 times 4g.40gb, at most 1 on one card; nearest that fit: 4g.40gb,3g.40gb |"),
        (A100_80, "1g.10gb+me,1g.10gb+me", "2 times 1g.10gb+me, at most 1"),
        (A30, "1g.6gb+me,2g.12gb+me", "1g.6gb+me and 2g.12gb+me: only one instance of a card can have the media"),
        (
            A100_80,
            "2g.20gb,2g.20gb,2g.20gb,1g.10gb,1g.10gb",
            (
                "their places overlap (1g.10gb at 0, 1, 2, 3, 4, 5, 6; 2g.20gb at 0, 2, 4); nearest that fit: "
                "2g.20gb,2g.20gb,1g.20gb,1g.10gb,1g.10gb |"
            ),
        ),
        (A100_80, "3c.4g.40gb", "3c.4g.40gb: 4g.40gb has compute instances of 1c, 2c, 4c; nearest"),
        (A100_80, "1C.3g.40gb", "1C.3g.40gb: profile names are lower case; nearest that fit: 3g.40gb |"),
        (A30, "7g.80gb", "7g.80gb: the card has no 7g.80gb, only 1g.6gb, 1g.6gb+me, 2g.12gb, 2g.12gb+me, 4g.24gb"),
        (H200, "3g.71gb,3g.71gb,1g.18gb", "it takes 9 memory slices of 8; nearest that fit: 3g.71gb,3g.71gb |"),
    ],
)
def test_the_broken_rule_is_named(device, text, message):
    assert find_problem(known_profiles(device), target(text)).startswith(message)


@pytest.mark.parametrize("device", [A100_40, A30])
def test_every_suggestion_works_and_none_is_further_away_than_need_be(device):
    profiles = known_profiles(device)
    for wanted in itertools.combinations_with_replacement(profiles, 2):
        suggested = nearest(profiles, wanted)
        assert suggested
        assert all(find_problem(profiles, target(each)) == "" for each in suggested)
        if fits(profiles, wanted):
            assert sorted(suggested[0].split(",")) == sorted(profile.name for profile in wanted)


def test_layouts_that_the_mig_user_guide_shows_for_an_a100_are_among_those_it_can_have():
    found = {tuple(sorted(profile.name for profile in layout)) for layout in layouts(known_profiles(A100_40))}
    for text in (
        "7g.40gb",
        "4g.20gb,3g.20gb",
        "4g.20gb,2g.10gb,1g.5gb",
        "4g.20gb,1g.5gb,1g.5gb,1g.5gb",
        "3g.20gb,3g.20gb",
        "3g.20gb,2g.10gb,1g.5gb,1g.5gb",
        "2g.10gb,2g.10gb,3g.20gb",
        "2g.10gb,2g.10gb,2g.10gb,1g.5gb",
        "1g.5gb,1g.5gb,1g.5gb,1g.5gb,1g.5gb,1g.5gb,1g.5gb",
    ):
        assert tuple(sorted(text.split(","))) in found, text


SHAPES = st.builds(
    lambda size, starts: Shape(size, tuple(sorted({start for start in starts if start + size <= 8} or {0}))),
    st.sampled_from([1, 2, 4]),
    st.sets(st.integers(0, 7), max_size=5),
)


def overlapping(found):
    return any(one & other for one, other in itertools.combinations(found, 2))


@given(st.lists(SHAPES, max_size=5))
@settings(max_examples=150, deadline=None)
def test_a_place_is_found_exactly_when_there_is_one(shapes):
    found = place(shapes)
    possible = [
        starts
        for starts in itertools.product(*(shape.starts for shape in shapes))
        if not overlapping([shape.mask(start) for shape, start in zip(shapes, starts, strict=True)])
    ]
    assert (found in possible) if possible else found is None


@given(st.lists(st.sampled_from([14, 19, 9, 15]), max_size=5), st.lists(st.sampled_from([14, 19, 9, 15]), max_size=4))
@settings(max_examples=150, deadline=None)
def test_as_much_stays_as_can(wanted, there):
    shapes = {each.id: Shape(each.size, each.starts) for each in known_profiles(A100_80)}
    starts = place([shapes[kind] for kind in there])
    if starts is None:
        return
    present = list(zip(there, starts, strict=True))
    found = arrange(wanted, shapes, present)
    best = -1
    for number in range(len(present) + 1):
        for kept in itertools.combinations(present, number):
            rest = list(wanted)
            if all(kind in rest and not rest.remove(kind) for kind, _ in kept):
                taken = sum(shapes[kind].mask(start) for kind, start in kept)
                if place([shapes[kind] for kind in rest], taken) is not None:
                    best = number
    assert (len(found.kept) if found else -1) == best


# Planning


@pytest.mark.parametrize(
    ("there", "wanted", "expected"),
    [
        ((), "3g.40gb,2g.20gb", ["make 2g.20gb at 2", "make 3g.40gb at 4"]),
        ([("2g.20gb", 2), ("3g.40gb", 4)], "3g.40gb,2g.20gb", []),
        ([("2g.20gb", 0), ("3g.40gb", 4)], "3g.40gb,2g.20gb", []),
        ([("3g.40gb", 4)], "4g.40gb,3g.40gb", ["make 4g.40gb at 0"]),
        (
            [("3g.40gb", 0)],
            "4g.40gb,3g.40gb",
            ["remove 3g.40gb at 0", "make 4g.40gb at 0", "make 3g.40gb at 4"],
        ),
        (
            [("1g.10gb", start) for start in range(7)],
            "3g.40gb,1g.10gb",
            [*(f"remove 1g.10gb at {start}" for start in range(1, 7)), "make 3g.40gb at 4"],
        ),
        ([("7g.80gb", 0)], "off", ["remove 7g.80gb at 0", "switch MIG off"]),
    ],
)
def test_what_fits_already_stays_where_it_is(there, wanted, expected):
    found = foresee(card(instances=[made(*each) for each in there]), target(wanted))
    assert texts(found) == expected


def test_switching_on_comes_first():
    found = foresee(card(enabled=False), target("7g.80gb"))
    assert texts(found) == ["switch MIG on", "make 7g.80gb at 0"]


@pytest.mark.parametrize(("enabled", "wanted", "step"), [(True, "7g.80gb", "on"), (False, "off", "off")])
def test_a_mode_that_would_change_at_the_next_reset_is_put_right(enabled, wanted, step):
    instances = [made("7g.80gb", 0)] if enabled else []
    found = foresee(card(instances=instances, enabled=enabled, pending=not enabled), target(wanted))
    assert texts(found) == [f"switch MIG {step}"]


def test_an_instance_left_without_its_compute_instance_is_completed():
    empty = Instance(9, "3g.40gb", 3, 4, 4, (), id=1)
    assert texts(foresee(card(instances=[empty]), target("3g.40gb"))) == ["make compute instances 3c in 3g.40gb at 4"]


def test_compute_instances_share_a_gpu_instance():
    found = choose(card(), target("1c.3g.40gb,2c.3g.40gb,3g.40gb"))
    assert sorted(instance.widths for instance in found.instances) == [(2, 1), (3,)]
    assert describe(choose(card(), target("1c.3g.40gb,2c.3g.40gb"))) == (
        "MIG on",
        "3g.40gb at 4, compute instances 2c, 1c",
    )


def test_compute_instances_change_inside_an_instance_that_stays():
    there = [made("3g.40gb", 4, (1, 0), (1, 1))]
    assert texts(foresee(card(instances=there), target("1c.3g.40gb,1c.3g.40gb,1c.3g.40gb"))) == [
        "make compute instances 1c in 3g.40gb at 4"
    ]
    assert texts(foresee(card(instances=there), target("3g.40gb"))) == [
        "remove compute instances 1c, 1c of 3g.40gb at 4",
        "make compute instances 3c in 3g.40gb at 4",
    ]


def test_a_layout_is_the_same_whatever_the_numbers_of_its_instances():
    instances = (made("3g.40gb", 4),)
    other = Instance(9, "3g.40gb", 3, 4, 4, (Compute(3, 0, id=5),), id=99)
    assert steps(card(instances=instances), Goal(enabled=True, instances=(other,))) == ()


def test_a_card_that_says_nothing_while_mig_is_off_is_only_switched_on():
    unknown = MigCard(0, "GPU-0", "NVIDIA B200", 0x290110DE, capable=True)
    assert texts(foresee(unknown, target("1g.23gb"))) == ["switch MIG on"]


@pytest.mark.parametrize("there", [(), [("1g.10gb", start) for start in range(7)], [("3g.40gb", 0)]])
def test_eight_cards_are_planned_in_under_fifty_milliseconds_of_cpu(there):
    cards = [card(index, instances=[made(*each) for each in there]) for index in range(8)]
    raw = dict.fromkeys(range(8), "3g.40gb,2g.20gb,1g.10gb,1g.10gb")

    def work():
        began = time.process_time()
        for index, each in assign(parse_layout(raw), cards).targets.items():
            assert find_problem(cards[index].profiles, each) == ""
            assert foresee(cards[index], each)
        return time.process_time() - began

    assert min(work() for _ in range(3)) < 0.05
