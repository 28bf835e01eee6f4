"""MIG: mode, profiles, placements, numbering, and who may do what.

Sequences with published numbers are from the NVIDIA MIG user guide (docs.nvidia.com/datacenter/tesla/mig-user-guide).
"""

from __future__ import annotations

import itertools
import re

import pytest
from conftest import NvmlError, answer_unless
from gpusim import catalogue

INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, IN_USE, INSUFFICIENT_RESOURCES = 2, 3, 4, 6, 19, 23
ONE, ONE_MEDIA, ONE_DOUBLE, TWO, THREE, FOUR, SEVEN = 19, 20, 15, 14, 9, 5, 0  # profile ids of the seven-slice cards


def fails_with(number, call, *arguments):
    with pytest.raises(NvmlError) as failure:
        call(*arguments)
    return failure.value.number == number


@pytest.fixture
def split(machine):
    """A client and card 0 in MIG mode."""
    nvml = machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceSetMigMode(card, 1) == 0
    return nvml, card


def create(nvml, card, profile):
    return nvml.nvmlGpuInstanceGetInfo(nvml.nvmlDeviceCreateGpuInstance(card, profile))


def create_device(nvml, card, profile):
    """Make a GPU instance with a compute instance over all of it."""
    instance = nvml.nvmlDeviceCreateGpuInstance(card, profile)
    widest = max((info for info in compute_profiles(nvml, instance)), key=lambda info: info.sliceCount)
    return instance, nvml.nvmlGpuInstanceCreateComputeInstance(instance, widest.id)


def compute_profiles(nvml, instance):
    call = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
    answers = (answer_unless(NOT_SUPPORTED, call, instance, slot, 0) for slot in range(9))
    return [info for info in answers if info is not None]


def devices(nvml, card):
    call = nvml.nvmlDeviceGetMigDeviceHandleByIndex
    indexes = range(nvml.nvmlDeviceGetMaxMigDeviceCount(card))
    answers = (answer_unless(NOT_FOUND, call, card, index) for index in indexes)
    return [device for device in answers if device is not None]


def test_profiles_as_listed_for_the_card(split):
    nvml, card = split
    found = {}
    for slot in range(0x12):
        info = answer_unless(NOT_SUPPORTED, nvml.nvmlDeviceGetGpuInstanceProfileInfo, card, slot)
        if info:
            found[info.name] = (info.id, info.instanceCount, info.sliceCount, nvml.gpu_placements(card, info.id))
    every, twos = [[start, 1] for start in range(7)], [[0, 2], [2, 2], [4, 2]]
    assert found == {
        "MIG 1g.10gb": (19, 7, 1, every),
        "MIG 1g.10gb+me": (20, 1, 1, every),
        "MIG 1g.20gb": (15, 4, 1, [*twos, [6, 2]]),
        "MIG 2g.20gb": (14, 3, 2, twos),
        "MIG 3g.40gb": (9, 2, 3, [[0, 4], [4, 4]]),
        "MIG 4g.40gb": (5, 1, 4, [[0, 4]]),
        "MIG 7g.80gb": (0, 1, 7, [[0, 8]]),
    }
    assert fails_with(INVALID_ARGUMENT, nvml.nvmlDeviceGetGpuInstanceProfileInfo, card, 0x12)
    assert nvml.nvmlDeviceGetGpuInstanceProfileInfo(card, 2, 1).memorySizeMB == 40192


@pytest.mark.parametrize(
    ("profiles", "ids"),
    [
        ([ONE, TWO, FOUR], [13, 5, 1]),
        ([THREE, THREE], [2, 1]),
        ([THREE, ONE, TWO, ONE], [2, 7, 4, 8]),
        ([TWO, ONE, ONE, ONE, ONE, ONE], [5, 13, 7, 8, 9, 10]),
        ([ONE] * 7, [13, 11, 12, 7, 8, 9, 10]),
        ([SEVEN], [0]),
    ],
)
def test_the_driver_places_and_numbers_as_published(split, profiles, ids):
    nvml, card = split
    assert [create(nvml, card, profile).id for profile in profiles] == ids


def test_published_order_that_does_not_fit(split):
    nvml, card = split
    for profile in (ONE, ONE, TWO):
        create(nvml, card, profile)
    assert fails_with(INSUFFICIENT_RESOURCES, nvml.nvmlDeviceCreateGpuInstance, card, THREE)


def test_explicit_placement(split):
    nvml, card = split
    info = nvml.nvmlGpuInstanceGetInfo(nvml.create_at(card, THREE, 0, 4))
    assert (info.id, info.placement.start, info.placement.size) == (1, 0, 4)
    assert fails_with(INSUFFICIENT_RESOURCES, nvml.create_at, card, ONE, 3, 1)
    for start in (1, 7, 8, 1000):
        assert fails_with(INVALID_ARGUMENT, nvml.create_at, card, TWO, start, 2)
    assert fails_with(INVALID_ARGUMENT, nvml.create_at, card, 77, 0, 1)


def test_remaining_capacity(split):
    nvml, card = split

    def left(profile):
        return nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(card, profile)

    assert [left(profile) for profile in (ONE, ONE_MEDIA, ONE_DOUBLE, TWO, THREE, FOUR, SEVEN)] == [7, 1, 4, 3, 2, 1, 1]
    create(nvml, card, ONE_MEDIA)
    assert [left(profile) for profile in (ONE, ONE_MEDIA, ONE_DOUBLE, TWO, THREE, FOUR, SEVEN)] == [6, 0, 3, 3, 1, 1, 0]


def test_one_set_of_media_extensions_for_all_sizes(bare_machine):
    bare_machine.gpusim("init", "--cards", "a30:1")
    nvml = bare_machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceSetMigMode(card, 1)
    two_media, one_media, one = 6, 21, 14
    assert create(nvml, card, two_media).id == 1
    assert fails_with(INSUFFICIENT_RESOURCES, nvml.nvmlDeviceCreateGpuInstance, card, one_media)
    assert [create(nvml, card, one).id for _ in range(2)] == [5, 6]
    assert nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(card, one) == 0


def test_mode_off_or_impossible_is_not_supported(bare_machine):
    bare_machine.gpusim("init", "--cards", "a100-sxm4-80gb:1,l40s:1")
    nvml = bare_machine.nvml()
    off, never = nvml.nvmlDeviceGetHandleByIndex(0), nvml.nvmlDeviceGetHandleByIndex(1)
    for card in (off, never):
        assert fails_with(NOT_SUPPORTED, nvml.nvmlDeviceGetGpuInstanceProfileInfo, card, 0)
        assert fails_with(NOT_SUPPORTED, nvml.nvmlDeviceCreateGpuInstance, card, ONE)
        assert nvml.nvmlDeviceGetMaxMigDeviceCount(card) == 0
    assert fails_with(NOT_SUPPORTED, nvml.nvmlDeviceSetMigMode, never, 1)


def test_devices_are_in_order_of_their_instances(split):
    nvml, card = split
    for profile in (ONE, TWO, FOUR):
        create_device(nvml, card, profile)
    found = devices(nvml, card)
    assert [nvml.nvmlDeviceGetGpuInstanceId(device) for device in found] == [1, 5, 13]
    assert [nvml.nvmlDeviceGetIndex(device) for device in found] == [0, 1, 2]
    assert [nvml.nvmlDeviceGetName(device) for device in found] == [
        f"NVIDIA A100-SXM4-80GB MIG {profile}" for profile in ("4g.40gb", "2g.20gb", "1g.10gb")
    ]
    for device in found:
        assert nvml.nvmlDeviceIsMigDeviceHandle(device) == 1
        assert nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device) == card
        uuid = nvml.nvmlDeviceGetUUID(device)
        assert re.fullmatch(r"MIG-[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", uuid)
        assert nvml.nvmlDeviceGetHandleByUUID(uuid) == device
    attributes = nvml.nvmlDeviceGetAttributes(found[0])
    assert (attributes.multiprocessorCount, attributes.gpuInstanceSliceCount, attributes.memorySizeMB) == (56, 4, 40192)


def test_narrow_compute_instances(split):
    nvml, card = split
    instance = nvml.nvmlDeviceCreateGpuInstance(card, THREE)
    names = {info.id: info.name for info in compute_profiles(nvml, instance)}
    assert names == {0: "MIG 1c.3g.40gb", 1: "MIG 2c.3g.40gb", 2: "MIG 3g.40gb"}
    assert nvml.compute_placements(instance, 0) == [[0, 1], [1, 1], [2, 1]]
    made = [nvml.nvmlGpuInstanceCreateComputeInstance(instance, 0) for _ in range(3)]
    infos = [nvml.nvmlComputeInstanceGetInfo(one) for one in made]
    assert [(info.id, info.placement.start, info.placement.size) for info in infos] == [(0, 0, 1), (1, 1, 1), (2, 2, 1)]
    assert fails_with(INSUFFICIENT_RESOURCES, nvml.nvmlGpuInstanceCreateComputeInstance, instance, 0)
    assert [nvml.nvmlDeviceGetName(device)[-10:] for device in devices(nvml, card)] == ["1c.3g.40gb"] * 3
    nvml.nvmlComputeInstanceDestroy(made[1])
    assert nvml.nvmlComputeInstanceGetInfo(nvml.nvmlGpuInstanceCreateComputeInstance(instance, 0)).id == 1
    assert nvml.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(instance, 0) == 0


def test_handles_stay_good_while_others_go(split):
    nvml, card = split
    made = [create_device(nvml, card, ONE) for _ in range(3)]
    (first, first_device), *others = made
    nvml.nvmlComputeInstanceDestroy(first_device)
    nvml.nvmlGpuInstanceDestroy(first)
    for instance, device in others:
        assert nvml.nvmlComputeInstanceGetInfo(device).gpuInstance == instance
    assert fails_with(INVALID_ARGUMENT, nvml.nvmlGpuInstanceGetInfo, first)
    assert fails_with(INVALID_ARGUMENT, nvml.nvmlComputeInstanceGetInfo, first_device)
    assert nvml.gpu_instances(card, ONE) == [instance for instance, _ in others]


def test_a_new_device_has_a_new_name(split):
    nvml, card = split
    seen = set()
    for _ in range(3):
        instance, device = create_device(nvml, card, SEVEN)
        seen.add(nvml.nvmlDeviceGetUUID(devices(nvml, card)[0]))
        nvml.nvmlComputeInstanceDestroy(device)
        nvml.nvmlGpuInstanceDestroy(instance)
    assert len(seen) == 3


def test_what_is_in_use_stays(machine, split):
    nvml, card = split
    instance, device = create_device(nvml, card, THREE)
    uuid = nvml.nvmlDeviceGetUUID(devices(nvml, card)[0])
    child = machine.start("--mig", uuid, "--mem", "10G")
    assert fails_with(IN_USE, nvml.nvmlComputeInstanceDestroy, device)
    assert fails_with(IN_USE, nvml.nvmlGpuInstanceDestroy, instance)
    child.kill()
    child.wait()
    assert fails_with(IN_USE, nvml.nvmlGpuInstanceDestroy, instance)  # its compute instance is still there
    nvml.nvmlComputeInstanceDestroy(device)
    nvml.nvmlGpuInstanceDestroy(instance)
    assert devices(nvml, card) == []


def test_processes_and_memory_of_an_instance(machine, split):
    nvml, card = split
    for profile in (THREE, THREE):
        create_device(nvml, card, profile)
    one, other = devices(nvml, card)
    child = machine.start(CUDA_VISIBLE_DEVICES=nvml.nvmlDeviceGetUUID(other))
    (process,) = nvml.nvmlDeviceGetComputeRunningProcesses(card)
    assert (process.pid, process.gpuInstanceId, process.computeInstanceId) == (child.pid, 2, 0)
    assert nvml.nvmlDeviceGetComputeRunningProcesses(one) == []
    assert [process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(other)] == [child.pid]
    assert nvml.nvmlDeviceGetMemoryInfo(other).used == nvml.nvmlDeviceGetMemoryInfo(card, 0x2000028).used == 1 << 30
    assert nvml.nvmlDeviceGetMemoryInfo(one).used == 0
    for call in (nvml.nvmlDeviceGetUtilizationRates, nvml.nvmlDeviceGetEncoderUtilization):
        assert fails_with(NOT_SUPPORTED, call, card)
    assert fails_with(NOT_SUPPORTED, nvml.nvmlDeviceGetProcessUtilization, card, 0)


def test_mode_of_a_card_in_use_waits_for_a_reset(machine):
    nvml = machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    child = machine.start("--gpu", 0)
    assert nvml.nvmlDeviceSetMigMode(card, 1) == IN_USE
    assert nvml.nvmlDeviceGetMigMode(card) == [0, 1]
    assert f"in use by PID {child.pid}" in machine.try_gpusim("reset", "--gpu", 0).err
    child.kill()
    child.wait()
    machine.gpusim("reset", "--gpu", 0)
    assert nvml.nvmlDeviceGetMigMode(card) == [1, 1]
    assert nvml.nvmlDeviceGetMigMode(nvml.nvmlDeviceGetHandleByIndex(1)) == [0, 0]


def test_mode_is_not_switched_off_under_instances(split):
    nvml, card = split
    instance = nvml.nvmlDeviceCreateGpuInstance(card, ONE)
    assert nvml.nvmlDeviceSetMigMode(card, 0) == IN_USE
    assert nvml.nvmlDeviceGetMigMode(card) == [1, 0]
    nvml.nvmlGpuInstanceDestroy(instance)
    assert nvml.nvmlDeviceSetMigMode(card, 0) == 0
    assert nvml.nvmlDeviceGetMigMode(card) == [0, 0]


def test_ordinary_users_read_and_change_nothing(machine, split, other_user):
    nvml, card = split
    create_device(nvml, card, THREE)
    user = machine.client(user=other_user)
    user.nvmlInit()
    (device,) = devices(user, card)
    assert user.nvmlDeviceGetUUID(device).startswith("MIG-")
    assert user.nvmlDeviceGetGpuInstanceProfileInfo(card, 0).id == ONE
    for call, *arguments in (
        (user.nvmlDeviceSetMigMode, card, 0),
        (user.nvmlDeviceCreateGpuInstance, card, ONE),
        (user.nvmlDeviceGetGpuInstanceRemainingCapacity, card, ONE),
        (user.gpu_instances, card, THREE),
        (user.gpu_placements, card, ONE),
        (user.nvmlDeviceSetPersistenceMode, card, 1),
    ):
        assert fails_with(NO_PERMISSION, call, *arguments)


def test_who_may_read_the_configuration_node_may_list(bare_machine, other_user):
    caps = bare_machine.folder / "caps"
    caps.mkdir()
    bare_machine.gpusim("init", "--cards", "a100-sxm4-80gb:1", "--caps", caps)
    nvml = bare_machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceSetMigMode(card, 1)
    create_device(nvml, card, THREE)
    user = bare_machine.client(user=other_user)
    user.nvmlInit()
    assert fails_with(NO_PERMISSION, user.gpu_instances, card, THREE)
    (caps / "nvidia-cap1").touch(0o444)
    assert len(user.gpu_instances(card, THREE)) == 1


def placeable(profiles, slices):
    """Whether instances of the profiles fit beside each other; tries every place for each."""

    def fits(rest, taken, media):
        if not rest:
            return True
        profile = rest[0]
        media += profile["ofa"]
        return media <= 1 and any(
            fits(rest[1:], taken | place, media)
            for start in profile["starts"]
            if not taken & (place := ((1 << profile["size"]) - 1) << start) and place < 1 << slices
        )

    return fits(profiles, 0, 0)


@pytest.mark.parametrize("name", ["a30", "a100-sxm4-40gb"])
def test_every_set_of_profiles_is_made_in_some_order_exactly_when_it_fits(bare_machine, name):
    """Exhaustive up to four instances; the tables of the other cards have the same shape as one of these two."""
    bare_machine.gpusim("init", "--cards", name)
    nvml = bare_machine.nvml()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceSetMigMode(card, 1)
    model = catalogue.model(name)
    profiles = {
        record.number("id"): {
            "size": record.number("size"),
            "ofa": record.number("ofa"),
            "starts": [int(start) for start in record["starts"].split(",")],
        }
        for record in catalogue.profiles([model["mig_family"]])
        if record.kind == "profile"
    }
    sets = [chosen for size in range(1, 5) for chosen in itertools.combinations_with_replacement(profiles, size)]
    for chosen, made in zip(sets, nvml.can_make(card, sets), strict=True):
        assert made == placeable([profiles[profile] for profile in chosen], model.number("mig_slices")), chosen
