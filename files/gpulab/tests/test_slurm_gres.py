from __future__ import annotations

import pytest
from gpulab.rules.cards import Card, MigDevice
from gpulab.rules.slurm_gres import (
    Device,
    gres_count,
    gres_line,
    inventory,
    kinds,
    parse_gres,
    short_name,
)

GIB = 1 << 30
A100 = "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("model", "short"),
    [
        (A100, "a100"),
        ("NVIDIA A100-PCIE-40GB", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 4090", "rtx_4090"),
        ("NVIDIA RTX A6000", "rtx_a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx_6000_ada"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("Quadro RTX 8000", "rtx_8000"),
        ("NVIDIA Graphics Device", "gpu"),
        ("", "gpu"),
    ],
)
def test_a_model_has_the_name_people_use(model, short):
    assert short_name(model) == short


def card(index, **changes):
    values = {"uuid": f"GPU-{index}", "name": A100, "minor": index, "memory_total": 80 * GIB, "mig_enabled": False}
    return Card(index=index, **{**values, **changes})


def instance(index, gi, profile="3g.40gb"):
    return MigDevice(index, f"MIG-{index}", profile, gi, 0, None, None)


def test_models_of_two_sizes_are_told_apart():
    cards = [card(0), card(1, name="NVIDIA A100-SXM4-40GB", memory_total=40 * GIB), card(2, name="NVIDIA L40S")]
    assert kinds(cards, chosen={}) == {
        A100: "a100_80gb",
        "NVIDIA A100-SXM4-40GB": "a100_40gb",
        "NVIDIA L40S": "l40s",
    }
    assert kinds(cards, chosen={A100: "big"})[A100] == "big"


def test_the_device_file_follows_the_minor_and_the_order_the_index():
    found = inventory([card(0, minor=2), card(1, minor=0)], {}, {A100: "a100"})
    assert [gres_line("gpu1", each) for each in found.devices] == [
        "NodeName=gpu1 Name=gpu Type=a100 File=/dev/nvidia2",
        "NodeName=gpu1 Name=gpu Type=a100 File=/dev/nvidia0",
    ]
    assert gres_count(found.devices) == "gpu:a100:2"


def test_an_instance_is_its_card_and_its_two_capabilities():
    split = card(1, minor=5, mig_enabled=True, mig_devices=(instance(0, 1), instance(1, 2, "1g.10gb")))
    capabilities = {"gpu5/gi1/access": 21, "gpu5/gi1/ci0/access": 22, "gpu5/gi2/access": 30, "gpu5/gi2/ci0/access": 31}
    found = inventory([card(0), split], capabilities, {A100: "a100"})
    assert found.problems == ()
    assert gres_line("n", found.devices[1]) == (
        "NodeName=n Name=gpu Type=a100_3g.40gb "
        "MultipleFiles=/dev/nvidia5,/dev/nvidia-caps/nvidia-cap21,/dev/nvidia-caps/nvidia-cap22"
    )
    assert gres_count(found.devices) == "gpu:a100:1,gpu:a100_3g.40gb:1,gpu:a100_1g.10gb:1"


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (card(0, lost=True, reason="GPU is lost"), "card 0 is left out: GPU is lost"),
        (card(0, minor=None), "card 0 is left out: the driver does not say which /dev/nvidiaN it is"),
        (card(0, mig_enabled=True), "card 0 is left out: MIG is on and it has no instance"),
        (card(0, mig_enabled=True, mig_devices=(instance(0, 1),)), "mig-minors does not list it"),
    ],
)
def test_what_cannot_be_handed_out_is_left_out_with_a_reason(broken, reason):
    found = inventory([broken, card(1)], {}, {A100: "a100"})
    assert [device.card for device in found.devices] == [1]
    assert reason in found.problems[0]


@pytest.mark.parametrize(
    ("value", "counts"),
    [
        ("gpu:a100:3,gpu:a100_1g.10gb:2", {"a100": 3, "a100_1g.10gb": 2}),
        ("gpu:a100:3(S:0-1),craynetwork:4", {"a100": 3}),
        ("gpu:4", {"": 4}),
        ("gpu", {"": 1}),
        ("gpu:a100", {"a100": 1}),
        ("(null)", {}),
        ("", {}),
    ],
)
def test_counts_are_read_as_slurm_writes_them(value, counts):
    assert parse_gres(value) == counts


def test_what_is_written_reads_back():
    devices = [Device("a100", ("/dev/nvidia0",), 0)] * 2 + [Device("a100_1g.10gb", ("/dev/nvidia1", "a", "b"), 1)]
    assert parse_gres(gres_count(devices)) == {"a100": 2, "a100_1g.10gb": 1}


def test_types_come_in_blocks_as_slurm_numbers_them():
    split = card(1, mig_enabled=True, mig_devices=(instance(0, 1), instance(1, 2)))
    capabilities = {
        f"gpu1/gi{gi}/{name}": 10 * gi + place for gi in (1, 2) for place, name in enumerate(("access", "ci0/access"))
    }
    found = inventory([card(0), split, card(2)], capabilities, {A100: "a100"})
    assert [each.uuid for each in found.devices] == ["GPU-0", "GPU-2", "MIG-0", "MIG-1"]
