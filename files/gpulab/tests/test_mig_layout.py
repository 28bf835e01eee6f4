"""What is asked for under MIG is understood, in both forms, and given to the right cards."""

from __future__ import annotations

import json

import pytest
from gpulab.errors import InputError
from gpulab.rules.mig_assign import assign
from gpulab.rules.mig_cards import MigCard
from gpulab.rules.mig_layout import parse_layout, render_layout
from hypothesis import given
from hypothesis import strategies as st

A100_40, A100_80, L40S = 0x20B010DE, 0x20B210DE, 0x26B910DE


def target(text):
    """Return what the short form asks of one card."""
    return parse_layout({0: text}).entries[0].target


def card(index=0, device=A100_80, *, name="NVIDIA A100-SXM4-80GB", capable=True, subsystem_id=0):
    return MigCard(index, f"GPU-{index}", name, device, subsystem_id, capable=capable)


def test_the_short_form_asks_for_cards_by_index():
    layout = parse_layout({0: "3g.40gb, 2g.20gb,1g.10gb", "1": False, 2: "off", 3: ["1g.10gb", "1g.10gb"]})
    assert [(entry.cards, entry.target.text) for entry in layout.entries] == [
        ((0,), "1g.10gb, 2g.20gb, 3g.40gb"),
        ((1,), "MIG off"),
        ((2,), "MIG off"),
        ((3,), "1g.10gb, 1g.10gb"),
    ]


DOCUMENT = {
    "version": "v1",
    "mig-configs": {
        "all-disabled": [{"devices": "all", "mig-enabled": False}],
        "all-enabled": [{"devices": "all", "mig-enabled": True, "mig-devices": {}}],
        "all-1g.10gb": [
            {"device-filter": ["0x20B210DE", "0x233010DE"], "devices": "all", "mig-enabled": True,
             "mig-devices": {"1g.10gb": 7}},
            {"device-filter": "0x20B010DE", "devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 4}},
        ],
        "custom": [
            {"devices": [0, 2], "mig-enabled": False},
            {"devices": [1], "mig-enabled": True, "mig-devices": {"1c.3g.40gb": 2, "1g.10gb+me": 1, "2g.20gb": 0}},
        ],
    },
}  # fmt: skip
"""Every feature of the examples of nvidia-mig-parted."""


def assigned(raw, cards, label=""):
    found = assign(parse_layout(raw, label=label), cards)
    assert found.problems == {}
    return {index: each.text for index, each in found.targets.items()}


def test_a_whole_document_of_mig_parted_is_read_by_label():
    cards = [card(0), card(1, A100_40), card(2, L40S, capable=False, name="NVIDIA L40S")]
    assert assigned(DOCUMENT, cards, "all-disabled") == {0: "MIG off", 1: "MIG off"}
    assert assigned(DOCUMENT, cards, "all-enabled") == {0: "MIG on, no instances", 1: "MIG on, no instances"}
    assert assigned(DOCUMENT, cards, "all-1g.10gb") == {0: ", ".join(["1g.10gb"] * 7), 1: ", ".join(["1g.10gb"] * 4)}
    assert assigned(DOCUMENT, cards, "custom") == {0: "MIG off", 1: "1c.3g.40gb, 1c.3g.40gb, 1g.10gb+me"}
    assert parse_layout(json.dumps(DOCUMENT), label="custom").entries == parse_layout(DOCUMENT, label="custom").entries


def test_a_document_with_one_label_needs_none_chosen():
    only = {"version": "v1", "mig-configs": {"mine": [{"devices": [0], "mig-enabled": False}]}}
    assert assigned(only, [card()]) == {0: "MIG off"}


def test_a_filter_may_name_the_subsystem():
    entry = {"device-filter": "0x20B210DE:0x146310DE", "devices": "all", "mig-enabled": False}
    layout = parse_layout({"version": "v1", "mig-configs": {"x": [entry]}})
    cards = [card(0, subsystem_id=0x146310DE), card(1, subsystem_id=1)]
    assert list(assign(layout, cards).targets) == [0]


@pytest.mark.parametrize("raw", [None, "", {}, "  "])
def test_nothing_asked_for_is_an_answer(raw):
    assert parse_layout(raw).entries == ()
    assert assign(parse_layout(raw), [card()]).targets == {}


def entry(**changes):
    fields = {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 1}}
    fields.update({key.replace("_", "-"): value for key, value in changes.items()})
    return {"version": "v1", "mig-configs": {"x": [{key: v for key, v in fields.items() if v != "drop"}]}}


BAD = [
    ("[0]", "mig_layout is [0]; the short form is"),
    ("3g.40gb", "mig_layout is not JSON"),
    ('{"0": "off", "0": "off"}', "mig_layout: key '0' stands 2 times in one mapping; keep one"),
    ('{"version": "v1", "mig-configs": {"a": [], "a": []}}', "key 'a' stands 2 times"),
    ("[" * 100_000, "mig_layout is not JSON"),
    ({0: "off", "0": "off"}, "mig_layout: key 0 stands 2 times; keep one"),
    ({"gpu0": "off"}, "mig_layout: key 'gpu0' is not the index of a card; the short form is"),
    ({-1: "off"}, "mig_layout: key '-1' is not the index of a card"),
    ({0: True}, 'mig_layout[0] is True; give profiles such as "3g.40gb,2g.20gb,1g.10gb", or off'),
    ({0: ""}, "mig_layout[0] is ''; give profiles"),
    ({0: []}, "mig_layout[0] is []; give profiles"),
    ({0: {"3g.40gb": 1}}, "mig_layout[0] is {'3g.40gb': 1}; give profiles"),
    ({0: "3g.40gb,,1g.10gb"}, "mig_layout[0] has '', which is no profile name; write such as 3g.40gb"),
    ({0: "3g40gb"}, "mig_layout[0] has '3g40gb', which is no profile name"),
    ({0: "$(reboot)"}, "mig_layout[0] has '$(reboot)', which is no profile name"),
    ({0: ",".join(["1g.10gb"] * 65)}, "mig_layout[0]: 1g.10gb is 65; give how many, a whole number up to 64"),
    ({"version": "v1", "mig-configs": {}, "labels": 1}, "mig_layout: key 'labels' is unknown; expected one of version"),
    ({"version": "v2", "mig-configs": {}}, "mig_layout has version 'v2'; expected version: v1"),
    ({"mig-configs": {"x": []}}, "mig_layout has no version; expected version: v1"),
    ({"version": "v1"}, "mig_layout: mig-configs is None; expected labels"),
    ({"version": "v1", "mig-configs": {"x": []}}, "mig_layout: 'x' is []; expected a list of entries"),
    ({"version": "v1", "mig-configs": {"x": ["all"]}}, "mig_layout: 'x', entry 1 is 'all'; expected the keys"),
    (entry(mig_devcies=1), "mig_layout: 'x', entry 1: key 'mig-devcies' is unknown; expected one of device-filter"),
    (entry(devices="drop"), "mig_layout: 'x', entry 1 has no devices"),
    (entry(mig_enabled="drop"), "mig_layout: 'x', entry 1 has no mig-enabled"),
    (entry(mig_enabled="yes"), "mig_layout: 'x', entry 1: mig-enabled is 'yes'; give true or false"),
    (entry(mig_enabled=False), "has mig-devices and mig-enabled: false; take one of them away"),
    (entry(mig_devices="drop"), "has no mig-devices, which mig-enabled: true needs"),
    (entry(mig_devices=["1g.10gb"]), "mig-devices is ['1g.10gb']; give counts"),
    (entry(mig_devices={"1g.10gb": "7"}), "mig-devices: 1g.10gb is '7'; give how many"),
    (entry(mig_devices={"1g.10gb": True}), "mig-devices: 1g.10gb is True; give how many"),
    (entry(mig_devices={"1g.10gb": 10**9}), "mig-devices: 1g.10gb is 1000000000; give how many"),
    (entry(mig_devices={"1g.10gb": 0}), "all counts of mig-devices are 0"),
    (entry(devices="some"), "devices is 'some'; give all, or indexes such as [0, 1]"),
    (entry(devices=[0, 0]), "devices has 0 twice; give each index once"),
    (entry(devices=[True]), "devices is [True]; give all, or indexes"),
    (entry(devices=[]), "devices is []; give all, or indexes"),
    (entry(device_filter="A100"), "device-filter has 'A100'; give PCI device and vendor"),
    (entry(device_filter=[0x20B210DE]), "device-filter has 548540638; give PCI device and vendor"),
]


@pytest.mark.parametrize(("raw", "message"), BAD)
def test_bad_input_is_one_line_with_place_value_and_remedy(raw, message):
    with pytest.raises(InputError) as error:
        parse_layout(raw)
    assert message in str(error.value)
    assert str(error.value).count("\n") == 0
    assert len(str(error.value)) < 400


def test_spaces_and_a_line_end_around_names_do_not_matter():
    assert target(" 3g.40gb ,1g.10gb\n").text == "1g.10gb, 3g.40gb"


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("", "mig_layout has 4 labels; choose one with mig_label: all-disabled, all-enabled, all-1g.10gb, custom"),
        ("all-2g", "mig_layout has no label 'all-2g'; it has all-disabled, all-enabled"),
    ],
)
def test_an_unknown_label_is_named_with_those_there_are(label, message):
    with pytest.raises(InputError, match="mig_layout has") as error:
        parse_layout(DOCUMENT, label=label)
    assert str(error.value).startswith(message)


def test_the_short_form_has_no_labels():
    with pytest.raises(InputError, match="short form, which has no labels, but 'x' was asked for"):
        parse_layout({0: "off"}, label="x")


@given(
    st.dictionaries(
        st.integers(0, 31),
        st.sampled_from(["off", "3g.40gb,2g.20gb,1g.10gb", "1g.10gb+me", "1c.3g.40gb,1c.3g.40gb,2c.3g.40gb"]),
        min_size=1,
    )
)
def test_what_is_noted_down_reads_as_the_same(wishes):
    targets = {index: target(text) for index, text in wishes.items()}
    layout = parse_layout(render_layout(targets, "gpulab"))
    assert {entry.cards[0]: entry.target for entry in layout.entries} == targets


# Which cards


def test_an_index_beyond_the_cards_is_a_problem_of_that_card():
    assert assign(parse_layout({0: "off", 7: "off"}), [card(0), card(1)]).problems == {
        7: "it is not there, this machine has 2 cards, 0 to 1"
    }


def test_mig_on_a_card_without_it_is_a_problem_and_off_is_none():
    plain = card(0, L40S, capable=False, name="NVIDIA L40S")
    assert "the card cannot be split" in assign(parse_layout({0: "1g.10gb"}), [plain]).problems[0]
    assert assign(parse_layout({0: "off"}), [plain]).problems == {}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (entry(device_filter="0x20B010DE"), "asks for no card of this machine; its cards are 0x26B910DE NVIDIA L40S"),
        (entry(), "asks for MIG, and no card of this machine can be split"),
    ],
)
def test_a_layout_that_is_for_no_card_here_is_refused(raw, message):
    with pytest.raises(InputError, match=message):
        assign(parse_layout(raw), [card(0, L40S, capable=False, name="NVIDIA L40S")])


def test_entries_that_contradict_each_other_are_refused():
    document = entry()
    document["mig-configs"]["x"].append({"devices": [0], "mig-enabled": False})
    with pytest.raises(InputError, match=r"entry 2 and .*entry 1 ask different things of card 0"):
        assign(parse_layout(document), [card()])
    document["mig-configs"]["x"][1] = {**document["mig-configs"]["x"][0], "devices": [0]}
    assert list(assign(parse_layout(document), [card()]).targets) == [0]


def test_a_card_that_cannot_be_reached_is_not_left_out():
    lost = MigCard(1, reason="fallen off the bus")
    raw = entry(device_filter="0x20B210DE", devices=[0, 1])
    assert list(assign(parse_layout(raw), [card(0), lost]).targets) == [0, 1]
