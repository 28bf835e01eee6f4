from __future__ import annotations

import pytest
from gpulab.errors import InputError
from gpulab.rules.lab import parse_lab, tier_for

PEOPLE = [{"name": "alice", "admin": True}, {"name": "bob"}, {"name": "carol"}]


LAYOUT = {0: "7g.80gb", 1: False}


def bound(gpu, **more):
    return [PEOPLE[0], {"name": "bob", "gpu": gpu, **more}, PEOPLE[2]]


def lab(**changes):
    raw = {"lab_admin": "alice", "lab_members": PEOPLE, **changes}
    return parse_lab({key: value for key, value in raw.items() if value is not None}, defined=raw)


@pytest.mark.parametrize(
    ("size", "tier"), [(1, "table"), (4, "table"), (5, "allocator"), (10, "allocator"), (11, "slurm"), (300, "slurm")]
)
def test_the_size_of_the_group_picks_the_tier(size, tier):
    assert tier_for(size) == tier


def test_the_group_is_as_large_as_its_present_members():
    people = [*PEOPLE, {"name": "dan", "state": "absent"}]
    found = lab(lab_members=people)
    assert found.group_size == 3
    assert found.tier_reason == "3 present members"


def test_a_number_from_the_command_line_is_a_number():
    assert lab(group_size="4").group_size == 4


def test_a_tiers_name_overrides_the_size():
    found = lab(group_size=40, gpu_tier="table")
    assert (found.tier, found.tier_reason) == ("table", "gpu_tier is table")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group_size": 0}, "group_size is 0; give a whole number"),
        ({"group_size": -1}, "group_size is -1; give a whole number"),
        ({"group_size": True}, "group_size is True; give a whole number"),
        ({"group_size": 2.5}, "group_size is 2.5; give a whole number"),
        ({"group_size": "seven"}, "group_size is 'seven'; give a whole number"),
        ({"group_size": None}, None),
        ({"gpu_tier": "cloud"}, "gpu_tier is 'cloud'; give one of auto, table, allocator, slurm"),
        ({"lab_language": "fr"}, "lab_language is 'fr'; give one of en, zh"),
        ({"lab_admin": None}, "lab_admin is not set; name the account"),
        ({"lab_admin": ""}, "lab_admin is ''; name the account"),
        ({"lab_admin": "bob"}, "bob"),
        ({"lab_admin": "zoe"}, "zoe"),
        ({"lab_members": []}, "lab_members"),
        ({"lab_members": "alice"}, "lab_members"),
        ({"lab_member": []}, "lab_member is not a variable of gpulab; did you mean lab_members"),
        ({"gpu_colour": "red"}, "gpu_colour is not a variable of gpulab; gpulab knows"),
        ({"lab_name": "two\nlines"}, "lab_name is .*; give one line"),
        ({"lab_mail": "mail.example.org"}, "lab_mail is 'mail.example.org'; give keys and values"),
        ({"lab_mail": {"smtp": "x"}}, "lab_mail.smtp is not known; expected one of smarthost"),
        ({"lab_mail": {"port": 0}}, "lab_mail.port is 0; give a TCP port"),
        ({"lab_mail": {"smarthost": "a|b"}}, r"lab_mail.smarthost is 'a\|b'; give a host name"),
        ({"lab_mail": {"user": "x\ny"}}, "lab_mail.user is .*; give one line of text"),
        ({"gpu_windows": "08-12"}, "gpu_windows is '08-12'; give a list of windows"),
        ({"gpu_window": []}, "gpu_window is not a variable of gpulab; did you mean gpu_windows"),
        ({"mig_spred": True}, "mig_spred is not a variable of gpulab; did you mean mig_spread"),
        ({"mig_spread": "often"}, "mig_spread is 'often'; give true or false"),
        ({"mig_spread": True}, "mig_spread is true and mig_layout makes no instance; make some, or set"),
        ({"lab_members": bound("gpu1")}, "lab_members, member bob: gpu is 'gpu1'; give an instance as mig-CARD"),
        ({"lab_members": bound("mig-0-0")}, "bob: gpu is mig-0-0; mig_layout has no card 0; add it there"),
        ({"lab_members": bound("mig-0-1"), "mig_layout": LAYOUT}, "mig_layout makes only mig-0-0 there; choose one"),
        ({"lab_members": bound("mig-1-0"), "mig_layout": LAYOUT}, "mig_layout makes no instance on card 1; make some"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_name_value_and_remedy(changes, message):
    if message is None:
        assert lab(**changes).group_size == 3
        return
    with pytest.raises(InputError, match=message) as refused:
        lab(**changes)
    assert "\n" not in str(refused.value)


def test_members_may_have_an_instance_that_the_layout_makes():
    found = lab(lab_members=bound("mig-0-0"), mig_layout=LAYOUT, mig_spread="true")
    assert [member.gpu for member in found.members] == ["", "mig-0-0", ""]


def test_who_has_left_needs_no_instance():
    assert lab(lab_members=bound("mig-9-9", state="absent")).group_size == 2


def test_a_layout_for_whatever_cards_there_are_is_left_to_role_mig():
    every = {
        "version": "v1",
        "mig-configs": {"a": [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}]},
    }
    assert lab(lab_members=bound("mig-3-6"), mig_layout=every).members[1].gpu == "mig-3-6"


def test_the_layout_alone_is_the_business_of_role_mig():
    assert lab(mig_layout="nonsense").windows


def test_the_golden_hours_are_the_usual_ones_unless_the_inventory_says_otherwise():
    assert [window.name for window in lab().windows] == ["morning", "afternoon", "evening"]
    assert lab(gpu_windows=[]).windows == ()
