"""Which cards there are, and what clients read of them."""

from __future__ import annotations

import pytest
from conftest import NvmlError
from gpusim import catalogue

INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, DRIVER_NOT_LOADED = 2, 3, 6, 9
A100_NAMES = ["NVIDIA A100-SXM4-80GB"] * 4


def cards_of(nvml):
    return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]


def test_four_a100(machine):
    nvml = machine.nvml()
    cards = cards_of(nvml)
    assert [nvml.nvmlDeviceGetName(card) for card in cards] == A100_NAMES
    assert [nvml.nvmlDeviceGetIndex(card) for card in cards] == [0, 1, 2, 3]
    assert nvml.nvmlSystemGetDriverVersion() == "550.163.01"
    assert nvml.nvmlSystemGetNVMLVersion() == "12.550.163.01"
    assert nvml.nvmlSystemGetCudaDriverVersion() == 12040


def test_memory_versions_differ_by_what_is_reserved(machine):
    nvml = machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    first, second = nvml.nvmlDeviceGetMemoryInfo(card), nvml.nvmlDeviceGetMemoryInfo(card, 0x2000028)
    assert first.total == second.total == 81920 << 20
    assert first.used == second.reserved > 0
    assert second.used == 0
    assert second.free == second.total - second.reserved


def test_memory_version_is_judged_by_its_top_byte(machine):
    nvml = machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetMemoryInfo(card, 0x2000099).total == 81920 << 20
    with pytest.raises(NvmlError) as failure:
        nvml.nvmlDeviceGetMemoryInfo(card, 0x1000028)
    assert failure.value.number == 25


@pytest.mark.parametrize("name", catalogue.model_names())
def test_every_model_of_the_table(bare_machine, name):
    bare_machine.gpusim("init", "--cards", name)
    nvml = bare_machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    facts = catalogue.model(name)
    assert nvml.nvmlDeviceGetName(card) == facts["name"]
    assert nvml.nvmlDeviceGetMemoryInfo(card).total == facts.number("memory_mib") << 20
    assert nvml.nvmlDeviceGetPciInfo(card).pciDeviceId == facts.number("device_id")
    assert nvml.nvmlDeviceGetEnforcedPowerLimit(card) == facts.number("power_limit_w") * 1000
    if facts["mig_family"]:
        assert nvml.nvmlDeviceGetMigMode(card) == [0, 0]
    else:
        with pytest.raises(NvmlError) as failure:
            nvml.nvmlDeviceGetMigMode(card)
        assert failure.value.number == NOT_SUPPORTED


def test_minor_is_not_index(bare_machine):
    bare_machine.gpusim("init", "--cards", "a100-sxm4-80gb:4", "--minors", "3,1,0,2")
    nvml = bare_machine.nvml()
    assert [nvml.nvmlDeviceGetMinorNumber(card) for card in cards_of(nvml)] == [3, 1, 0, 2]


def test_identity_follows_the_seed(bare_machine):
    def uuids(seed):
        bare_machine.gpusim("init", "--cards", "a30:2", "--seed", seed)
        nvml = bare_machine.nvml()
        return [nvml.nvmlDeviceGetUUID(card) for card in cards_of(nvml)]

    first, again, other = uuids("one"), uuids("one"), uuids("two")
    assert first == again
    assert len({*first, *other}) == 4


def test_cards_are_found_by_uuid_serial_and_bus(machine):
    nvml = machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(2)
    assert nvml.nvmlDeviceGetHandleByUUID(nvml.nvmlDeviceGetUUID(card)) == card
    assert nvml.nvmlDeviceGetHandleBySerial(nvml.nvmlDeviceGetSerial(card)) == card
    bus_id = nvml.nvmlDeviceGetPciInfo(card).busId
    assert bus_id == "00000000:81:00.0"
    for written in (bus_id, "0000:81:00.0", "81:00.0"):
        assert nvml.nvmlDeviceGetHandleByPciBusId(written) == card


@pytest.mark.parametrize(
    ("call", "argument", "number"),
    [
        ("nvmlDeviceGetHandleByUUID", "GPU-unknown", NOT_FOUND),
        ("nvmlDeviceGetHandleByPciBusId", "00000000:02:00.0", NOT_FOUND),
        ("nvmlDeviceGetHandleByPciBusId", "nonsense", NOT_FOUND),
        ("nvmlDeviceGetHandleByIndex", 4, INVALID_ARGUMENT),
    ],
)
def test_what_is_not_there(machine, call, argument, number):
    with pytest.raises(NvmlError) as failure:
        getattr(machine.nvml(), call)(argument)
    assert failure.value.number == number


def test_no_machine_is_no_driver(bare_machine):
    with pytest.raises(NvmlError) as failure:
        bare_machine.nvml()
    assert failure.value.number == DRIVER_NOT_LOADED


def links_of(nvml, card):
    return [
        nvml.nvmlDeviceGetNvLinkRemotePciInfo(card, link).busId
        for link in range(12)
        if nvml.nvmlDeviceGetNvLinkState(card, link)
    ]


def test_four_cards_are_linked_pair_by_pair(machine):
    nvml = machine.nvml()
    cards = cards_of(nvml)
    buses = [nvml.nvmlDeviceGetPciInfo(card).busId for card in cards]
    for card, own in zip(cards, buses, strict=True):
        assert sorted(links_of(nvml, card)) == sorted([bus for bus in buses if bus != own] * 4)


def test_eight_cards_are_linked_to_switches(bare_machine):
    bare_machine.gpusim("init", "--cards", "h200-sxm5-141gb:8")
    nvml = bare_machine.nvml()
    buses = {nvml.nvmlDeviceGetPciInfo(card).busId for card in cards_of(nvml)}
    card = nvml.nvmlDeviceGetHandleByIndex(7)
    switch = 2
    assert [nvml.nvmlDeviceGetNvLinkRemoteDeviceType(card, link) for link in range(18)] == [switch] * 18
    assert not buses & {nvml.nvmlDeviceGetNvLinkRemotePciInfo(card, link).busId for link in range(18)}


def test_link_down_and_links_that_are_not_there(machine):
    machine.gpusim("set", "--gpu", 0, "--link-down", 3)
    nvml = machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    assert len(links_of(nvml, card)) == 11
    for link, number in ((12, NOT_SUPPORTED), (18, INVALID_ARGUMENT)):
        with pytest.raises(NvmlError) as failure:
            nvml.nvmlDeviceGetNvLinkState(card, link)
        assert failure.value.number == number


def test_cards_without_ecc_fans_or_links_say_so(bare_machine):
    bare_machine.gpusim("init", "--cards", "rtx-4090:1,a30:1")
    nvml = bare_machine.nvml()
    gaming, server = cards_of(nvml)
    assert nvml.nvmlDeviceGetFanSpeed(gaming) == 30
    assert nvml.nvmlDeviceGetEccMode(server) == [1, 1]
    for call, card in (("nvmlDeviceGetEccMode", gaming), ("nvmlDeviceGetFanSpeed", server)):
        with pytest.raises(NvmlError) as failure:
            getattr(nvml, call)(card)
        assert failure.value.number == NOT_SUPPORTED


def test_what_is_set_is_what_is_read(machine):
    machine.gpusim("set", "--gpu", 1, "--temperature", 91, "--ecc-uncorrected", 7, "--persistence", "on")
    machine.gpusim("busy", "--gpu", 1, "--sm", 77, "--memory-load", 12, "--mem", "30G")
    nvml = machine.nvml()
    card, idle = nvml.nvmlDeviceGetHandleByIndex(1), nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetTemperature(card, 0) == 91
    assert nvml.nvmlDeviceGetTotalEccErrors(card, 1, 0) == 7
    assert nvml.nvmlDeviceGetTotalEccErrors(card, 0, 0) == 0
    assert nvml.nvmlDeviceGetPersistenceMode(card) == 1
    rates = nvml.nvmlDeviceGetUtilizationRates(card)
    assert (rates.gpu, rates.memory) == (77, 12)
    assert nvml.nvmlDeviceGetMemoryInfo(card, 0x2000028).used == 30 << 30
    assert nvml.nvmlDeviceGetPowerUsage(card) > nvml.nvmlDeviceGetPowerUsage(idle)
    assert nvml.nvmlDeviceGetUtilizationRates(idle).gpu == 0
