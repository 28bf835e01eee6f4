"""Members who leave and come back, and runs that are killed anywhere."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from gpulab.errors import GpulabError, InputError
from gpulab.rules.members import parse_members
from gpulab.services.member_look import SheetBookings
from gpulab.services.members import Request, reconcile
from members_machine import ALICE, BOB, CAROL, GONE, Killed, Machine, watch_files
from test_ssh_keys import ED25519

if TYPE_CHECKING:
    from pathlib import Path

NO_MOVE = "before archive /home/bob"
"""A home that cannot be moved is closed where it is: another end, and meant so."""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


class TestLeaving:
    @pytest.fixture
    def left(self, machine):
        machine.reconcile([ALICE, BOB, CAROL])
        machine._append("etc/group", "docker:x:999:bob,carol")
        machine.leave_traces("bob", 1001)
        machine.log.clear()
        return machine.reconcile([ALICE, BOB | GONE, CAROL])

    @pytest.mark.usefixtures("left")
    def test_the_account_is_closed(self, machine):
        assert machine.line("etc/passwd", "bob")[6] == "/usr/sbin/nologin"
        assert machine.line("etc/shadow", "bob")[1] == "!*"
        assert machine.line("etc/shadow", "bob")[7] == "1"
        assert not (machine.root / "etc/ssh/authorized_keys.d/bob").exists()

    @pytest.mark.usefixtures("left")
    def test_every_group_is_left_and_others_stay_in(self, machine):
        assert machine.group("gpu-members") == {"alice", "carol"}
        assert machine.group("vision") == set()
        assert machine.group("docker") == {"carol"}

    @pytest.mark.usefixtures("left")
    def test_everything_that_runs_or_would_run_is_ended(self, machine):
        assert +machine.running == {}
        assert +machine.booked == {}
        assert not (machine.root / "var/spool/cron/crontabs/bob").exists()
        assert not (machine.root / "var/lib/systemd/linger/bob").exists()

    @pytest.mark.usefixtures("left")
    def test_the_home_is_kept_where_only_root_gets(self, machine):
        assert not (machine.root / "home/bob").exists()
        assert machine.read("home/.gpulab-archive/bob/results.txt") == "42"
        assert (machine.root / "home/.gpulab-archive").stat().st_mode & 0o777 == 0o700

    def test_doors_close_first_and_processes_end_before_the_home_moves(self, left):
        assert left.actions["bob"] == [
            "left",
            "close account: expired, password locked, no shell",
            "remove managed ssh keys",
            "leave group docker",
            "leave group gpu-members",
            "leave group vision",
            "remove crontab, lingering",
            "end 3 processes",
            "end 2 bookings",
            "archive home /home/bob as /home/.gpulab-archive/bob",
        ]

    @pytest.mark.usefixtures("left")
    def test_it_is_remembered(self, machine):
        entry = machine.registered("bob")
        assert (entry.state, entry.archive, entry.shell) == ("absent", "/home/.gpulab-archive/bob", "/bin/bash")
        assert [event.what for event in entry.history] == ["created", "left"]

    @pytest.mark.usefixtures("left")
    def test_the_second_run_finds_nothing_to_do(self, machine):
        assert not machine.reconcile([ALICE, BOB | GONE, CAROL]).changed

    @pytest.mark.usefixtures("left")
    def test_new_processes_of_who_left_end_in_the_next_run(self, machine):
        machine.running[1001] = 1
        assert machine.reconcile([ALICE, BOB | GONE, CAROL]).actions == {"bob": ["end 1 processes"]}

    @pytest.mark.usefixtures("left")
    def test_containers_of_who_left_end_too(self, machine):
        machine.running[int(machine.line("etc/subuid", "bob")[1]) + 5] = 1
        machine.reconcile([ALICE, BOB | GONE, CAROL])
        assert +machine.running == {}

    @pytest.mark.usefixtures("left")
    def test_coming_back_restores_what_was(self, machine):
        outcome = machine.reconcile([ALICE, BOB, CAROL])
        assert outcome.actions["bob"][0] == "returned"
        assert machine.line("etc/passwd", "bob")[2:] == ["1001", "1001", "", "/home/bob", "/bin/bash"]
        assert machine.line("etc/shadow", "bob")[1] == "*"
        assert machine.line("etc/shadow", "bob")[7] == ""
        assert machine.read("home/bob/results.txt") == "42"
        assert machine.group("vision") == {"bob"}
        assert machine.group("docker") == {"carol"}
        assert machine.registered("bob").archive == ""
        assert not machine.reconcile([ALICE, BOB, CAROL]).changed

    @pytest.mark.usefixtures("left")
    def test_who_comes_back_to_a_second_home_keeps_both(self, machine):
        machine.write("home/bob/new.txt", "")
        machine.own("home/bob", 1001)
        outcome = machine.reconcile([ALICE, BOB, CAROL])
        assert "bob came back and has both /home/bob and the archive" in "".join(outcome.warnings)
        assert machine.read("home/.gpulab-archive/bob/results.txt") == "42"
        assert machine.registered("bob").archive == "/home/.gpulab-archive/bob"
        assert not machine.reconcile([ALICE, BOB, CAROL]).changed

    def test_somebody_who_was_never_here_cannot_leave(self, machine):
        machine.reconcile([ALICE])
        assert not machine.reconcile([ALICE, BOB | GONE]).changed
        assert machine.line("etc/passwd", "bob") == []

    def test_an_account_that_was_deleted_by_hand_leaves_its_home_in_the_archive(self, machine):
        machine.reconcile([ALICE, BOB])
        machine.delete("bob")
        machine.reconcile([ALICE, BOB | GONE])
        assert (machine.root / "home/.gpulab-archive/bob").exists()

    def test_an_account_that_was_deleted_by_hand_is_made_again_with_its_number(self, machine):
        machine.reconcile([ALICE, BOB, CAROL])
        machine.delete("bob")
        machine.kill_at = len(machine.touches) + 1
        with pytest.raises(Killed):
            machine.reconcile([ALICE, BOB, CAROL])
        machine.reconcile([ALICE, BOB, CAROL])
        assert machine.line("etc/passwd", "bob")[2] == "1001"
        assert [event.what for event in machine.registered("bob").history] == ["created", "created"]

    @pytest.mark.usefixtures("left")
    def test_a_second_archive_does_not_replace_the_first(self, machine):
        machine.reconcile([ALICE, BOB, CAROL])
        machine.write("home/.gpulab-archive/bob/old.txt", "")
        machine.reconcile([ALICE, BOB | GONE, CAROL])
        assert (machine.root / "home/.gpulab-archive/bob/old.txt").exists()
        assert machine.read("home/.gpulab-archive/bob.2/results.txt") == "42"


class TestLeavingAgainstOdds:
    @pytest.fixture
    def members(self, machine):
        machine.reconcile([ALICE, BOB, CAROL])
        machine.leave_traces("bob", 1001)
        return [ALICE, BOB | GONE, CAROL]

    def test_a_home_that_is_a_link_stays_and_is_named(self, machine, members):
        (machine.root / "home/bob").rename(machine.root / "home/elsewhere")
        (machine.root / "home/bob").symlink_to(machine.root / "etc")
        outcome = machine.reconcile(members)
        assert outcome.errors == []
        assert (machine.root / "home/bob").is_symlink()
        assert "bob left, but /home/bob is a link, or no folder" in outcome.warnings[0]

    def test_a_home_of_somebody_else_stays_and_is_named(self, machine, members):
        machine.own("home/bob", 1002)
        assert "belongs to uid 1002" in machine.reconcile(members).warnings[0]
        assert (machine.root / "home/bob").exists()

    def test_a_home_above_another_persons_stays_and_is_named(self, machine, members):
        machine._append("etc/passwd", "visitor:x:1900:1900::/home/bob/visitor:/bin/bash")
        assert "also holds the home of visitor" in machine.reconcile(members).warnings[0]

    @pytest.mark.parametrize(
        "home", ["/", "/home", "/etc", "/root/bob", "/home/admin", "/usr/share/x", "/home/../etc/x"]
    )
    def test_a_home_that_is_the_systems_stays(self, machine, members, home):
        passwd = machine.read("etc/passwd").replace(":/home/bob:", f":{home}:")
        machine.write("etc/passwd", passwd)
        before = (machine.root / home.lstrip("/")).exists()
        outcome = machine.reconcile(members)
        assert outcome.errors == []
        assert (machine.root / home.lstrip("/")).exists() == before
        assert not list(machine.root.rglob(".gpulab-archive/*"))

    def test_a_root_folder_in_the_account_file_is_not_given_to_who_comes_back(self, machine, members):
        (machine.root / "root").mkdir(mode=0o700)
        machine.write("etc/passwd", machine.read("etc/passwd").replace(":/home/bob:", ":/root:"))
        assert "bob left, but /root is not one person's home" in machine.reconcile(members).warnings[0]
        machine.reconcile([ALICE, BOB, CAROL])
        assert machine.line("etc/shadow", "bob")[7] == ""
        assert machine.owners.get((machine.root / "root").stat().st_ino, 0) == 0

    def test_a_mounted_home_is_closed_where_it_is_and_reopened(self, machine, members):
        machine.write("proc/self/mountinfo", "36 35 98:0 / /home/bob rw,noatime master:1 - ext4 /dev/x rw\n")
        outcome = machine.reconcile(members)
        assert outcome.actions["bob"][-1] == "close home /home/bob where it is: a file system is mounted there"
        home = machine.root / "home/bob"
        assert (home.stat().st_mode & 0o777, machine.owners[home.stat().st_ino]) == (0o700, 0)
        assert not machine.reconcile(members).changed
        machine.reconcile([ALICE, BOB, CAROL])
        assert machine.owners[home.stat().st_ino] == 1001

    def test_a_home_that_cannot_be_moved_is_closed_where_it_is(self, machine, members, monkeypatch):
        def busy(*_: Any, **__: Any) -> None:
            raise OSError(16, "Device or resource busy")

        monkeypatch.setattr("members_machine.MachineHomes.archive", busy)
        outcome = machine.reconcile(members)
        assert outcome.errors == []
        assert "could not be moved" in "".join(outcome.warnings)
        assert machine.registered("bob").archive == "/home/bob"
        assert not machine.reconcile(members).changed

    def test_homes_in_a_folder_that_others_can_write_are_closed_not_moved(self, machine, members):
        (machine.root / "home").chmod(0o777)
        outcome = machine.reconcile(members)
        assert "can be changed by others than root" in "".join(outcome.warnings)
        assert not (machine.root / "home/.gpulab-archive").exists()

    def test_processes_that_do_not_end_are_an_error_and_the_next_run_goes_on(self, machine, members):
        machine.stubborn.add(1001)
        outcome = machine.reconcile(members)
        assert outcome.errors == ["bob: end 3 processes: 3 would not end: 1000 (train), 1001 (train), 1002 (train)"]
        assert machine.line("etc/shadow", "bob")[7] == "1"
        assert (machine.root / "home/bob").exists()
        assert machine.registered("bob").state == "leaving"
        machine.stubborn.clear()
        assert machine.reconcile(members).errors == []
        assert machine.registered("bob").state == "absent"

    def test_a_damaged_booking_sheet_does_not_keep_the_door_open(self, machine, members, monkeypatch):
        def damaged(*_: Any) -> int:
            raise GpulabError("the sheet is not an ordinary file")

        monkeypatch.setattr("members_machine.MachineBookings.count", damaged)
        outcome = machine.reconcile(members)
        assert machine.line("etc/shadow", "bob")[7] == "1"
        assert "the bookings of bob, who left, could not be looked at" in outcome.warnings[0]

    def test_a_run_that_is_logged_in_as_the_leaver_is_refused(self, machine, members, monkeypatch):
        monkeypatch.setattr("members_machine.MachineProcesses.logged_in", lambda _: frozenset({0, 1001}))
        with pytest.raises(InputError, match="this very run is logged in as bob"):
            machine.reconcile(members)

    def test_a_uid_that_changed_hands_is_refused(self, machine, members):
        machine.write("etc/passwd", machine.read("etc/passwd").replace("bob:x:1001", "bob:x:1777"))
        with pytest.raises(InputError, match="account bob has uid 1777, but the one that gpulab manages has 1001"):
            machine.reconcile(members)


class TestKilled:
    """A run that ends anywhere, and is repeated, ends where an unbroken one does."""

    BEFORE = (ALICE, BOB, CAROL, {"name": "fourth"})
    AWAY = (ALICE, BOB, CAROL | GONE, {"name": "fourth"})
    AFTER = (
        ALICE | {"full_name": "Alice L"},
        BOB | GONE,
        CAROL | {"groups": ["vision"]},
        {"name": "fourth", "shell": "/usr/bin/zsh", "ssh_keys": [ED25519]},
        {"name": "fifth", "groups": ["audio-lab"]},
    )

    def start(self, root, monkeypatch):
        root.mkdir()
        machine = Machine(root)
        machine.reconcile(list(self.BEFORE))
        machine.leave_traces("carol", 1002)
        machine.reconcile(list(self.AWAY))
        machine.leave_traces("bob", 1001)
        machine.touches.clear()
        watch_files(machine, monkeypatch)
        return machine

    @pytest.mark.parametrize("how", ["kill_at", "fail_at"])
    def test_anywhere(self, tmp_path, monkeypatch, how):
        with monkeypatch.context() as patched:
            unbroken = self.start(tmp_path / "unbroken", patched)
            unbroken.reconcile(list(self.AFTER))
        places = [place for place, what in enumerate(unbroken.touches) if how == "kill_at" or what != NO_MOVE]
        assert len(places) > 30, "this test must have many places to stop at"
        for place in places:
            with monkeypatch.context() as patched:
                broken = self.start(tmp_path / f"{place}", patched)
                setattr(broken, how, place)
                try:
                    errors = broken.reconcile(list(self.AFTER)).errors
                except (Killed, GpulabError):
                    errors = ["stopped"]
                outcome = broken.reconcile(list(self.AFTER))
            assert errors, place
            assert outcome.errors == [], place
            assert broken.snapshot() == unbroken.snapshot(), place

    def test_one_members_failure_does_not_stop_the_others(self, machine, monkeypatch):
        def fails_for_bob(self: Machine, chosen: dict[str, str], words: list[str]) -> None:
            if words == ["bob"]:
                raise GpulabError("no space left on device")
            useradd(self, chosen, words)

        useradd = Machine._useradd
        monkeypatch.setattr(Machine, "_useradd", fails_for_bob)
        outcome = machine.reconcile([ALICE, BOB, CAROL])
        assert outcome.errors == ["bob: create account, uid 1001: no space left on device"]
        assert machine.group("gpu-members") == {"alice", "carol"}
        assert machine.read("home/carol/.profile")
        assert machine.registered("bob").state == "creating"


class TestBookings:
    """The real booking sheet, as the table tier keeps it."""

    SHEET = (
        "task_name,user,gpu_id,start_time,end_time,est_hours,status\n"
        "past,bob,0,2026-11-01 09:00,2026-11-01 12:00,3,booked\n"
        "running,bob,0,2026-12-01 08:00,2026-12-01 12:00,4,booked\n"
        "later,bob,1,2026-12-02 08:00,2026-12-02 12:00,4,booked\n"
        "others,carol,2,2026-12-01 08:00,2026-12-01 12:00,4,booked\n"
        "a bad row\n"
    )

    def test_what_runs_or_is_to_come_ends_and_the_rest_stays(self, machine):
        machine.reconcile([ALICE, BOB, CAROL])
        machine.write("home/admin/gpu_schedule.csv", self.SHEET)
        world = replace(machine.world(), bookings=SheetBookings())
        request = Request(members=parse_members([ALICE, BOB | GONE, CAROL]), lab_admin="alice")
        outcome = reconcile(request, world, dry_run=False)
        assert outcome.errors == []
        assert "end 2 bookings" in outcome.actions["bob"]
        rows = [line.rpartition(",")[::2] for line in machine.read("home/admin/gpu_schedule.csv").splitlines()[1:]]
        assert [status for _, status in rows[:4]] == ["booked", "done", "cancelled", "booked"]
        assert rows[1][0] == "running,bob,0,2026-12-01 08:00,2026-12-01 09:00,4"
        assert rows[4] == ("", "a bad row")

    @pytest.mark.parametrize("kind", ["link", "fifo", "none"])
    def test_a_sheet_that_is_none_keeps_nobody_in(self, machine, kind):
        machine.reconcile([ALICE, BOB])
        sheet = machine.root / "home/admin/gpu_schedule.csv"
        sheet.parent.mkdir()
        if kind == "link":
            sheet.symlink_to(machine.root / "etc/shadow")
        elif kind == "fifo":
            os.mkfifo(sheet)
        world = replace(machine.world(), bookings=SheetBookings())
        request = Request(members=parse_members([ALICE, BOB | GONE]), lab_admin="alice")
        outcome = reconcile(request, world, dry_run=False)
        assert machine.line("etc/shadow", "bob")[7] == "1"
        assert ("is not an ordinary file" in "".join(outcome.warnings)) == (kind != "none")
