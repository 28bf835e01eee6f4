"""Bookings as reservations, and back."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest
from gpulab.adapters.slurm import SlurmError
from gpulab.rules.booking import Booking
from gpulab.rules.slurm_bookings import creation, name_of
from gpulab.services.sheet_file import read_sheet, sheet_path
from gpulab.services.slurm_bookings import carry

NOW = datetime(2026, 12, 2, 9, 0)  # noqa: DTZ001 - naive server time
HEADER = "task_name,user,gpu_id,start_time,end_time,est_hours,status\n"
TRAIN = "train,bob,0,2026-12-03 09:00,2026-12-03 13:00,4,booked\n"
RUNNING = "sweep,carol,1,2026-12-02 08:00,2026-12-02 12:00,4,booked\n"
PAST = "old,bob,2,2026-12-01 08:00,2026-12-01 12:00,4,booked\n"
GIVEN_BACK = "no,bob,3,2026-12-03 09:00,2026-12-03 13:00,4,cancelled\n"
TRAIN_NAME = "booking-bob-gpu0-202612030900-240min"
RUNNING_NAME = "booking-carol-gpu1-202612020800-240min"


class Slurm:
    """Keeps reservations as slurmctld does."""

    def __init__(self, refuse=None):
        self.reservations = {"maintenance": []}
        self.refuse = refuse or {}
        self.asked = 0

    def __call__(self, argv, **_):
        self.asked += 1
        match argv:
            case ["scontrol", "--oneliner", "show", "reservation"]:
                return "".join(f"ReservationName={name} StartTime=x\n" for name in self.reservations)
            case ["scontrol", "delete", name]:
                del self.reservations[name.partition("=")[2]]
            case ["scontrol", "--quiet", "create", "reservation", name, *options]:
                name = name.partition("=")[2]
                for part, why in self.refuse.items():
                    if part in name:
                        raise SlurmError(why)
                self.reservations[name] = options
        return ""


@pytest.fixture
def root(tmp_path):
    sheet_path(tmp_path).parent.mkdir(parents=True)
    (tmp_path / "var/lib/gpulab/slurm").mkdir(parents=True)
    return tmp_path


def sheet(root, *rows):
    sheet_path(root).write_text(HEADER + "".join(rows))


def statuses(root):
    return [booking.status for booking in read_sheet(root).bookings]


def step(root, slurm, now=NOW, **options):
    return carry(root, lambda: now, run_command=slurm, **options)


def test_what_is_booked_is_reserved_and_nothing_else(root):
    sheet(root, TRAIN, RUNNING, PAST, GIVEN_BACK)
    slurm = Slurm()
    found = step(root, slurm)
    assert found.done == [f"create reservation {TRAIN_NAME}", f"create reservation {RUNNING_NAME}"]
    assert slurm.reservations[TRAIN_NAME] == [
        "Users=bob",
        "StartTime=2026-12-03T09:00:00",
        "EndTime=2026-12-03T13:00:00",
        "TRES=gres/gpu=1",
        "Flags=MAGNETIC",
    ]
    assert "StartTime=now" in slurm.reservations[RUNNING_NAME]
    assert set(slurm.reservations) == {"maintenance", TRAIN_NAME, RUNNING_NAME}
    assert step(root, slurm).done == []


def test_a_look_changes_nothing(root):
    sheet(root, TRAIN)
    slurm = Slurm()
    assert step(root, slurm, dry_run=True).done == [f"create reservation {TRAIN_NAME}"]
    assert set(slurm.reservations) == {"maintenance"}
    assert not (root / "var/lib/gpulab/slurm/bookings.json").exists()


def test_without_bookings_slurm_is_not_asked(root):
    slurm = Slurm()
    assert step(root, slurm).done == []
    sheet(root, PAST, GIVEN_BACK)
    assert step(root, slurm).done == []
    assert slurm.asked == 0


def test_going_back_bookings_count_again_but_those_that_were_deleted(root):
    sheet(root, TRAIN, RUNNING)
    slurm = Slurm()
    step(root, slurm)
    del slurm.reservations[RUNNING_NAME]
    step(root, slurm, leave=True)
    assert set(slurm.reservations) == {"maintenance"}
    assert statuses(root) == ["booked", "cancelled"]
    assert not (root / "var/lib/gpulab/slurm/bookings.json").exists()
    audit = [json.loads(line) for line in (root / "var/lib/gpulab/booking/audit.jsonl").read_text().splitlines()]
    assert audit[-1]["rows"][0]["before"]["user"] == "carol"


def test_reservations_that_slurm_lost_with_its_state_are_made_again(root):
    cluster = root / "var/lib/slurm/slurmctld/clustername"
    cluster.parent.mkdir(parents=True)
    cluster.write_text("lab|2351")
    sheet(root, TRAIN, RUNNING)
    slurm = Slurm()
    step(root, slurm)
    cluster.rename(cluster.with_name("lost"))
    cluster.write_text("lab|2351")
    slurm.reservations = {}
    assert step(root, slurm).done == [f"create reservation {TRAIN_NAME}", f"create reservation {RUNNING_NAME}"]
    assert statuses(root) == ["booked", "booked"]
    del slurm.reservations[TRAIN_NAME]  # and from now on who is missing was deleted again
    step(root, slurm)
    assert statuses(root) == ["cancelled", "booked"]


def test_one_who_is_killed_while_it_goes_back_cancels_nothing(root):
    sheet(root, TRAIN, RUNNING)
    slurm = Slurm()
    step(root, slurm)

    def dies(argv, **options):
        answer = slurm(argv, **options)
        if argv[1] == "delete":
            raise KeyboardInterrupt
        return answer

    with pytest.raises(KeyboardInterrupt):
        step(root, dies, leave=True)
    step(root, slurm, leave=True)
    assert set(slurm.reservations) == {"maintenance"}
    assert statuses(root) == ["booked", "booked"]


def test_a_reservation_that_ran_out_was_not_deleted(root):
    sheet(root, RUNNING)
    slurm = Slurm()
    step(root, slurm)
    del slurm.reservations[RUNNING_NAME]
    assert step(root, slurm, now=NOW + timedelta(hours=3)).done == []
    assert statuses(root) == ["booked"]


def test_a_booking_that_was_changed_by_hand_is_reserved_anew(root):
    sheet(root, TRAIN)
    slurm = Slurm()
    step(root, slurm)
    sheet(root, TRAIN.replace("13:00", "14:00"))
    step(root, slurm)
    assert set(slurm.reservations) == {"maintenance", "booking-bob-gpu0-202612030900-300min"}
    assert statuses(root) == ["booked"]


def test_what_slurm_refuses_is_said_and_tried_again(root):
    sheet(root, TRAIN, RUNNING)
    slurm = Slurm({"carol": "scontrol create reservation: Invalid user"})
    found = step(root, slurm)
    assert found.not_held == [f"{RUNNING_NAME}: scontrol create reservation: Invalid user"]
    slurm.refuse = {}
    assert step(root, slurm).done == [f"create reservation {RUNNING_NAME}"]
    assert statuses(root) == ["booked", "booked"]


def test_a_release_that_cannot_reserve_cards_says_so_once(root):
    sheet(root, TRAIN, RUNNING)
    slurm = Slurm({"booking": "TRES type 'gres/gpu' not supported with reservations"})
    found = step(root, slurm)
    assert (found.done, found.not_held) == ([], ["2 bookings: this release of Slurm cannot reserve a GPU"])
    assert step(root, slurm, leave=True).done == []
    assert statuses(root) == ["booked", "booked"]


def test_names_are_plain():
    booking = Booking("a b", "bob", 3, NOW, NOW + timedelta(minutes=90), 1.5)
    assert name_of(booking) == "booking-bob-gpu3-202612020900-90min"
    assert creation("n", booking, NOW)[2] == "StartTime=now"
