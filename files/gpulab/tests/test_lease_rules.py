"""Who gets which card: the choice and the line, held to what they promise by made-up machines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpulab.rules.lease_queue import Limits, Waiter, decide, refusal
from gpulab.rules.leases import GIB, Lease, LeasedCard, Place, Request, Wish, available, choose, free_memory, usable
from hypothesis import given
from hypothesis import strategies as st

SIZE = 80 * GIB


def place(index, **changes):
    return replace(Place(f"GPU-{index}", index, f"card {index}", total=SIZE), **changes)


def lease(number, *cards, uid=1001, shared=False, memory=SIZE):
    held = tuple(LeasedCard(f"GPU-{index}", index, memory, shared) for index in cards)
    return Lease(number, f"user{uid}", uid, 100 + number, 5, held, 0.0, "train", f"gpulab-lease-{number}.scope")


def waiter(number, cards=1, *, uid=1001, memory=None, share=False, held="", bound=""):
    return Waiter(number, uid, f"user{uid}", Wish(Request(cards, memory, share), bound), held)


def given_to(outcomes):
    return {outcome.number: [card.index for card in outcome.cards] for outcome in outcomes if outcome.cards}


# The choice


def test_the_card_with_most_free_memory_is_chosen():
    places = [place(0, used=3 * GIB, quiet=False), place(1, used=GIB, quiet=False), place(2, used=2 * GIB, quiet=False)]
    (card,) = choose(places, [], Request())
    assert (card.index, card.memory, card.shared) == (1, SIZE, False)


def test_a_card_without_any_process_comes_first():
    places = [place(0, total=90 * GIB, quiet=False), place(1)]
    assert [card.index for card in choose(places, [], Request())] == [1]


@pytest.mark.parametrize("state", [{"reason": "lost"}, {"strangers": ("carol (python, PID 12)",)}])
def test_what_cannot_be_read_or_is_used_without_a_lease_is_not_free(state):
    (outcome,) = decide([place(0, **state)], [], [waiter(1)])
    assert not outcome.cards
    assert next(iter(state.values()))[0] in outcome.why


def test_a_card_whose_memory_somebody_else_holds_is_not_free_for_one_alone():
    full = place(0, used=60 * GIB)
    assert not usable(full, Request())
    assert usable(full, Request(memory=20 * GIB))
    assert usable(full, Request(memory=20 * GIB, share=True))
    outcomes = decide([full], [], [waiter(1), waiter(2, memory=20 * GIB)])
    assert given_to(outcomes) == {2: [0]}, "and who waits for it in vain holds up nobody"
    assert "card 0 has 20 GiB that no lease holds" in outcomes[0].why


def test_shared_leases_live_on_one_card_while_their_promises_fit():
    shared = [lease(1, 0, shared=True, memory=30 * GIB), lease(2, 0, shared=True, memory=30 * GIB)]
    places = [place(0), place(1)]
    outcomes = decide(places, shared[:1], [waiter(9, memory=30 * GIB, share=True)])
    assert given_to(outcomes) == {9: [0]}, "whole cards stay whole"
    assert given_to(decide(places, shared, [waiter(9, memory=30 * GIB, share=True)])) == {9: [1]}
    assert given_to(decide([place(0)], shared, [waiter(9, memory=20 * GIB, share=True)])) == {9: [0]}


def test_memory_used_inside_a_lease_counts_once_and_outside_in_full():
    held = lease(1, 0, shared=True, memory=30 * GIB)
    assert free_memory(place(0, used=25 * GIB, by_lease={1: 25 * GIB}), [held]) == 50 * GIB
    assert free_memory(place(0, used=35 * GIB, by_lease={1: 35 * GIB}), [held]) == 45 * GIB
    assert free_memory(place(0, used=35 * GIB, by_lease={1: 25 * GIB}), [held]) == 40 * GIB


def test_one_program_gets_one_mig_instance_or_several_whole_cards():
    places = [place(0, instance=True), place(1, instance=True), place(2)]
    assert given_to(decide(places, [], [waiter(1, 1)])) == {1: [0]}
    assert refusal(Request(cards=2), places, Limits(), Wish(Request(cards=2)), ()).endswith("1 whole cards to give")


def test_a_bound_member_gets_the_own_instance_and_nobody_else_does():
    places = [place(0, instance=True), place(1, instance=True)]
    reserved = {"GPU-0"}
    line = [waiter(1, bound="GPU-0"), waiter(2, uid=1002), waiter(3, uid=1003)]
    outcomes = decide(places, [], line, reserved=reserved)
    assert given_to(outcomes) == {1: [0], 2: [1]}


# The line


def test_a_large_request_is_not_overtaken():
    outcomes = decide([place(0), place(1)], [lease(1, 0)], [waiter(2, 2), waiter(3, 1, uid=1002)])
    assert given_to(outcomes) == {}
    assert [outcome.position for outcome in outcomes] == [1, 2]
    assert "kept for those who came before you" in outcomes[1].why
    assert given_to(decide([place(0), place(1)], [], [waiter(2, 2), waiter(3, 1, uid=1002)])) == {2: [0, 1]}


def test_who_cannot_be_served_whatever_comes_free_does_not_hold_up_the_others():
    places = [place(0), place(1, reason="lost")]
    line = [waiter(1, 2), waiter(2, held="stopped"), waiter(3)]
    outcomes = decide(places, [], line)
    assert given_to(outcomes) == {3: [0]}
    assert [outcome.position for outcome in outcomes if not outcome.cards] == [1, 2]
    assert given_to(decide([place(0), place(1)], [lease(9, 1)], line)) == {}, "and has its turn when it can be"


def test_the_limits_of_a_member_hold_within_one_round_and_do_not_hold_up_others():
    places = [place(index) for index in range(4)]
    line = [waiter(1), waiter(2), waiter(3), waiter(4, uid=1002)]
    assert set(given_to(decide(places, [], line, Limits(leases=2)))) == {1, 2, 4}
    assert set(given_to(decide(places, [lease(9, 0)], line, Limits(cards=2)))) == {1, 4}
    assert "1 of the 1 leases" in decide(places, [lease(9, 0)], [waiter(1)], Limits(leases=1))[0].why


@pytest.mark.parametrize(
    ("request_", "limits", "words"),
    [
        (Request(cards=5), Limits(), "5 cards are asked for, but this server has 4 cards to give"),
        (Request(memory=100 * GIB), Limits(), "--mem asks for 100.0 GiB, but the largest device has 80.0 GiB"),
        (Request(cards=3), Limits(cards=2), "3 cards are asked for, but a member may have 2 at a time"),
        (Request(cards=2), Limits(), ""),
    ],
)
def test_what_can_never_be_is_refused_at_once(request_, limits, words):
    assert refusal(request_, [place(index) for index in range(4)], limits, Wish(request_), ()) == words


# What holds for every machine

devices = st.builds(
    lambda index, used, quiet, stranger, reason: place(
        index, used=used * GIB, quiet=quiet, strangers=("x",) if stranger else (), reason="lost" if reason else ""
    ),
    st.just(0),
    st.sampled_from([0, 0, 0, 1, 30, 79]),
    st.booleans(),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([False, False, False, False, True]),
)
machines = st.lists(devices, min_size=1, max_size=5).map(
    lambda found: [
        replace(each, index=number, uuid=f"GPU-{number}", name=f"card {number}") for number, each in enumerate(found)
    ]
)
wishes = st.tuples(
    st.integers(1, 3), st.sampled_from([None, 10 * GIB, 30 * GIB, 75 * GIB]), st.booleans(), st.integers(1, 4)
)
lines = st.lists(wishes, max_size=12).map(
    lambda found: [
        waiter(number, cards, uid=1000 + who, memory=memory or (10 * GIB if share else None), share=share)
        for number, (cards, memory, share, who) in enumerate(found, start=1)
    ]
)


def as_lease(found, line):
    asked = next(each for each in line if each.number == found.number)
    return Lease(found.number, asked.user, asked.uid, 1, 1, found.cards, 0.0, "", "")


def check_promises(places, leases):
    by_uuid = {each.uuid: each for each in places}
    for uuid, each in by_uuid.items():
        parts = [card for held in leases for card in held.cards if card.uuid == uuid]
        alone = [card for card in parts if not card.shared]
        assert len(alone) <= 1, "a card is never given twice alone"
        assert not alone or len(parts) == 1, "nor alone and shared"
        if parts and not alone:
            assert sum(card.memory for card in parts) + each.foreign <= each.total, "promises never exceed the card"


@given(machines, lines)
def test_no_card_twice_no_promise_too_many_and_no_half_requests(places, line):
    outcomes = decide(places, [], line)
    check_promises(places, [as_lease(each, line) for each in outcomes if each.cards])
    for each, asked in zip(outcomes, line, strict=True):
        assert len(each.cards) in {0, asked.wish.request.cards}
        assert len({card.uuid for card in each.cards}) == len(each.cards)
        assert bool(each.cards) == (each.position == 0)
        assert bool(each.why) != bool(each.cards)
    positions = [each.position for each in outcomes if each.position]
    assert positions == list(range(1, len(positions) + 1))


@given(machines, lines)
def test_whoever_comes_later_changes_nothing_for_those_before(places, line):
    for length in range(len(line)):
        assert decide(places, [], line)[:length] == decide(places, [], line[:length])


@given(machines, lines, st.randoms(use_true_random=False))
def test_everybody_who_can_be_served_is_served_and_in_order_for_each_card(places, line, random):
    leases, served = [], []
    waiting = list(line)
    for _ in range(200):
        outcomes = decide(places, leases, waiting)
        won = {each.number for each in outcomes if each.cards}
        leases += [as_lease(each, line) for each in outcomes if each.cards]
        check_promises(places, leases)
        # Nobody got a card that somebody before, still waiting and able to use what works today, could have had.
        for early in waiting:
            fitting = {each.uuid for each in places if usable(each, early.wish.request)}
            if early.number in won or len(fitting) < early.wish.request.cards:
                continue
            for late in waiting:
                if late.number > early.number and late.number in won:
                    taken = {card.uuid for each in outcomes if each.number == late.number for card in each.cards}
                    assert not taken & fitting
        served += sorted(won)
        waiting = [each for each in waiting if each.number not in won]
        if not leases:
            break
        leases.remove(random.choice(leases))
    for each in waiting:
        request = each.wish.request
        able = [one for one in places if usable(one, request) and available(one, [], request)]
        assert len(able) < request.cards, "whoever could be served on an empty machine is served in the end"
