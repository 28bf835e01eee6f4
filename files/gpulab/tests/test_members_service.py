"""Members on a small machine: they come, work, leave and come back, and the run may be killed anywhere."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from gpulab.errors import GpulabError, InputError
from gpulab.services.members import read_registry
from members_machine import Killed, Machine, watch_files
from test_ssh_keys import ED25519

if TYPE_CHECKING:
    from pathlib import Path

ALICE = {"name": "alice", "admin": True, "full_name": "Alice", "mail": "alice@example.org", "ssh_keys": [ED25519]}
BOB = {"name": "bob", "ssh_keys": [ED25519], "groups": ["vision"]}
CAROL = {"name": "carol", "shell": "/usr/bin/zsh"}
GONE = {"state": "absent"}
NO_MOVE = "before archive /home/bob"
"""A home that cannot be moved is closed where it is: another end, and meant so."""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def registered(machine: Machine, name: str) -> Any:
    return next(entry for entry in read_registry(machine.root) if entry.name == name)


def leave_traces(machine: Machine, name: str, uid: int) -> None:
    """Have a member work: files, processes, a crontab, jobs, bookings."""
    machine.write(f"home/{name}/results.txt", "42")
    machine.write(f"var/spool/cron/crontabs/{name}", "* * * * * true\n")
    machine.write(f"var/lib/systemd/linger/{name}", "")
    machine.running[uid] = 3
    machine.booked[name] = 2


def delete(machine: Machine, name: str) -> None:
    """Delete an account behind gpulab's back, as `userdel NAME` does; the home stays."""
    for file in ("passwd", "shadow", "group"):
        lines = machine.read(f"etc/{file}").splitlines(keepends=True)
        machine.write(f"etc/{file}", "".join(line for line in lines if not line.startswith(f"{name}:")))


class TestJoining:
    def test_new_members_get_account_home_groups_and_keys(self, machine):
        outcome = machine.reconcile([ALICE, BOB, CAROL])
        assert outcome.errors == []
        assert machine.line("etc/passwd", "alice") == [
            "alice",
            "x",
            "1000",
            "1000",
            "Alice",
            "/home/alice",
            "/bin/bash",
        ]
        assert machine.line("etc/passwd", "carol")[6] == "/usr/bin/zsh"
        assert machine.line("etc/shadow", "bob")[1] == "*"
        assert machine.group("gpu-members") == {"alice", "bob", "carol"}
        assert machine.group("gpu-admins") == {"alice"}
        assert machine.group("vision") == {"bob"}
        assert machine.read("home/bob/.profile") == "# skeleton\n"
        assert (machine.root / "home/bob").stat().st_mode & 0o777 == 0o750
        assert machine.read("etc/ssh/authorized_keys.d/bob").splitlines()[1:] == [ED25519]
        assert outcome.actions["bob"] == [
            "created",
            "create account, uid 1001",
            "join group gpu-members",
            "join group vision",
            "make home /home/bob",
            "write ssh keys",
        ]

    def test_the_second_run_finds_nothing_to_do_and_calls_no_tool(self, machine):
        machine.reconcile([ALICE, BOB, CAROL])
        machine.log.clear()
        before = machine.snapshot()
        outcome = machine.reconcile([ALICE, BOB, CAROL])
        assert not outcome.changed
        assert (machine.log, outcome.actions, outcome.differences) == ([], {}, [])
        assert machine.snapshot() == before

    def test_a_thousand_members_cost_no_tool_calls_when_nothing_changes(self, machine):
        crowd = [{"name": f"m{number}", "uid": 2000 + number} for number in range(1000)]
        machine.write(
            "etc/passwd",
            machine.read("etc/passwd").splitlines()[0]
            + "\n"
            + "".join(f"{m['name']}:x:{m['uid']}:{m['uid']}::/home/{m['name']}:/bin/bash\n" for m in crowd),
        )
        machine.write("etc/shadow", "".join(f"{m['name']}:*:20000:0:99999:7:::\n" for m in crowd))
        for member in crowd:
            (machine.root / "home" / member["name"]).mkdir()
        machine.reconcile([ALICE, *crowd])
        machine.log.clear()
        assert not machine.reconcile([ALICE, *crowd]).changed
        assert machine.log == []

    def test_the_number_of_tool_calls_for_groups_does_not_grow_with_members(self, machine):
        machine.reconcile([ALICE, *({"name": f"m{number}"} for number in range(20))])
        assert sum(line.startswith("gpasswd") for line in machine.log) == 2

    def test_check_mode_tells_the_same_and_touches_nothing(self, machine):
        before = machine.snapshot()
        told = machine.reconcile([ALICE, BOB], dry_run=True)
        assert machine.snapshot() == before
        done = machine.reconcile([ALICE, BOB])
        assert (told.changed, told.actions, told.differences) == (done.changed, done.actions, done.differences)

    def test_the_difference_can_be_read(self, machine):
        difference = machine.reconcile([ALICE, BOB], dry_run=True).differences[1]
        assert difference.what == "member bob"
        assert difference.before == ""
        assert difference.after.splitlines() == [
            "managed: present",
            "groups: gpu-members, vision",
            "uid: 1001",
            "shell: /bin/bash",
            "login: open",
            "home: /home/bob",
            "ssh keys: SHA256:rUVaR8zSx5GpN4v2N6v/4hNw2SzAiWoNYuhMrc/4Kvw",
        ]

    def test_numbers_of_people_who_left_are_not_given_again(self, machine):
        machine.reconcile([ALICE, BOB])
        machine.reconcile([ALICE, BOB | GONE])
        delete(machine, "bob")
        machine.reconcile([ALICE, BOB | GONE, CAROL])
        assert machine.line("etc/passwd", "carol")[2] == "1002"


class TestPeopleWhoWereThereBefore:
    def person(self, machine, **changes):
        record = {"name": "bob", "uid": "1500", "home": "/srv/people/bob", "shell": "/usr/bin/zsh"} | changes
        machine._append("etc/passwd", "{name}:x:{uid}:{uid}:Bob,room 7:{home}:{shell}".format(**record))
        machine._append("etc/shadow", f"{record['name']}:$y$secret:20000:0:99999:7:::")
        machine._append("etc/group", f"{record['name']}:x:{record['uid']}:")
        machine.write(f"{record['home'].lstrip('/')}/paper.tex", "")
        machine.own(record["home"].lstrip("/"), int(record["uid"]))

    def test_who_is_listed_is_adopted_as_they_are(self, machine):
        self.person(machine)
        outcome = machine.reconcile([ALICE, BOB])
        assert machine.line("etc/passwd", "bob") == [
            "bob",
            "x",
            "1500",
            "1500",
            "Bob,room 7",
            "/srv/people/bob",
            "/usr/bin/zsh",
        ]
        assert machine.line("etc/shadow", "bob")[1] == "$y$secret"
        assert outcome.actions["bob"][0] == "adopted"
        assert registered(machine, "bob").uid == 1500

    def test_a_listed_name_changes_only_the_name_in_the_comment(self, machine):
        self.person(machine)
        machine.reconcile([ALICE, BOB | {"full_name": "Robert"}])
        assert machine.line("etc/passwd", "bob")[4] == "Robert,room 7"

    def test_who_is_not_listed_is_not_touched(self, machine):
        self.person(machine, name="visitor")
        before = {path: value for path, value in machine.snapshot().items() if path.startswith("srv")}
        machine.reconcile([ALICE])
        assert machine.line("etc/shadow", "visitor")[1] == "$y$secret"
        assert {path: value for path, value in machine.snapshot().items() if path.startswith("srv")} == before

    def test_a_password_survives_leaving_and_coming_back(self, machine):
        self.person(machine)
        machine.reconcile([ALICE, BOB | GONE])
        assert machine.line("etc/shadow", "bob")[1] == "!$y$secret"
        machine.reconcile([ALICE, BOB])
        assert machine.line("etc/shadow", "bob")[1] == "$y$secret"
        assert machine.line("etc/passwd", "bob")[6] == "/usr/bin/zsh"

    def test_strangers_in_the_lab_groups_are_named_and_stay(self, machine):
        self.person(machine, name="visitor")
        machine._append("etc/group", "gpu-admins:x:900:visitor")
        outcome = machine.reconcile([ALICE])
        assert machine.group("gpu-admins") == {"visitor", "alice"}
        assert any("visitor is in group gpu-admins without being in lab_members" in line for line in outcome.warnings)

    def test_a_group_with_somebody_who_has_no_local_account_keeps_them(self, machine):
        machine._append("etc/group", "gpu-members:x:900:from-ldap")
        assert machine.reconcile([ALICE]).errors == []
        assert machine.group("gpu-members") == {"from-ldap", "alice"}

    @pytest.mark.parametrize(
        ("changes", "members", "line"),
        [
            ({"uid": "998"}, [BOB], "the server has a system account of that name (uid 998)"),
            ({"uid": "65534"}, [BOB], "the server has a system account of that name (uid 65534)"),
            ({}, [BOB | {"uid": 1501}], "uid is 1501, but the account has 1500"),
            ({"name": "visitor"}, [BOB | {"uid": 1500}], "uid 1500 is or was visitor's"),
            ({"name": "visitor"}, [BOB | {"groups": ["visitor"]}], "is the own group of the account visitor"),
            ({"name": "visitor", "home": "/home/bob"}, [BOB], "/home/bob is there already and belongs to uid 1500"),
            ({"name": "visitor"}, [CAROL | {"groups": ["adm"]}], "group"),
        ],
    )
    def test_taking_what_is_theirs_is_refused_and_changes_nothing(self, machine, changes, members, line):
        self.person(machine, **changes)
        before = machine.snapshot()
        with pytest.raises(InputError) as caught:
            machine.reconcile([ALICE, *members])
        assert line in str(caught.value)
        after = machine.snapshot()
        assert {path: after[path] for path in before} == before
        assert machine.log == []

    def test_groups_of_the_system_are_refused_by_number(self, machine):
        machine._append("etc/group", "vision:x:150:")
        with pytest.raises(InputError, match=r"group vision belongs to the system here \(gid 150\)"):
            machine.reconcile([ALICE, BOB])

    def test_a_group_of_the_new_name_that_nobody_uses_is_taken(self, machine):
        machine._append("etc/group", "bob:x:1700:")
        machine.reconcile([ALICE, BOB])
        assert machine.line("etc/passwd", "bob")[3] == "1700"

    def test_a_group_of_the_new_name_that_is_in_use_is_refused(self, machine):
        machine._append("etc/group", "bob:x:1700:daemon")
        with pytest.raises(InputError, match=r"a group of that name \(gid 1700\) that is in use"):
            machine.reconcile([ALICE, BOB])


class TestChanges:
    def test_only_what_differs_is_touched(self, machine):
        machine.reconcile([ALICE, BOB, CAROL])
        machine.log.clear()
        outcome = machine.reconcile([ALICE, BOB | {"shell": "/usr/bin/zsh"}, CAROL])
        assert machine.log == ["usermod --shell=/usr/bin/zsh bob"]
        assert outcome.actions == {"bob": ["set shell /usr/bin/zsh"]}

    def test_what_the_list_gave_it_takes_and_what_others_gave_stays(self, machine):
        machine.reconcile([ALICE, BOB | {"admin": True}])
        machine._append("etc/group", "theirs:x:1800:bob")
        machine.reconcile([ALICE, BOB | {"groups": []}])
        assert "bob" not in machine.group("vision") | machine.group("gpu-admins")
        assert "bob" in machine.group("theirs")

    def test_keys_are_exactly_those_of_the_list(self, machine):
        machine.reconcile([ALICE, BOB])
        machine.reconcile([ALICE, BOB | {"ssh_keys": []}])
        assert not (machine.root / "etc/ssh/authorized_keys.d/bob").exists()

    def test_a_key_file_that_others_could_change_is_written_again(self, machine):
        machine.reconcile([ALICE, BOB])
        path = machine.root / "etc/ssh/authorized_keys.d/bob"
        path.chmod(0o666)
        assert machine.reconcile([ALICE, BOB]).actions == {"bob": ["write ssh keys"]}
        assert path.stat().st_mode & 0o777 == 0o644

    def test_a_link_in_place_of_a_key_file_is_replaced_not_followed(self, machine):
        machine.reconcile([ALICE, BOB])
        path = machine.root / "etc/ssh/authorized_keys.d/bob"
        path.unlink()
        path.symlink_to(machine.root / "etc/shadow")
        before = machine.read("etc/shadow")
        machine.reconcile([ALICE, BOB])
        assert not path.is_symlink()
        assert machine.read("etc/shadow") == before

    def test_a_shell_that_is_not_there_is_refused(self, machine):
        with pytest.raises(InputError, match="shell is /bin/fish, which cannot be run on this server"):
            machine.reconcile([ALICE, BOB | {"shell": "/bin/fish"}])

    def test_who_vanishes_from_the_list_is_reported_and_left_alone(self, machine):
        machine.reconcile([ALICE, BOB])
        before = machine.snapshot()
        outcome = machine.reconcile([ALICE])
        assert not outcome.changed
        assert machine.snapshot() == before
        assert "bob is managed here but no longer in lab_members" in outcome.warnings[0]
        assert "state: absent" in outcome.warnings[0]

    def test_an_account_that_somebody_let_expire_is_reported_not_opened(self, machine):
        machine.reconcile([ALICE, BOB])
        machine._usermod({"expiredate": "20000"}, ["bob"])
        outcome = machine.reconcile([ALICE, BOB])
        assert not outcome.changed
        assert "account bob has expired" in outcome.warnings[0]


class TestMail:
    def test_mail_stays_here_without_a_way_out(self, machine):
        machine.reconcile([ALICE])
        assert [line for line in machine.read("etc/aliases").splitlines() if line[:1] != "#"] == [
            "postmaster: root",
            "root: alice",
        ]

    def test_mail_goes_to_the_addresses_when_there_is_one(self, machine):
        machine.reconcile([ALICE, BOB, CAROL | GONE | {"mail": "carol@example.org"}], mail_forward=True)
        assert machine.read("etc/aliases").splitlines()[3:-1] == ["root: alice", "alice: alice@example.org"]

    def test_a_mailer_that_compiles_the_file_is_told(self, machine):
        machine.write("etc/aliases.db", "old")
        machine.reconcile([ALICE])
        assert machine.log[-1] == "newaliases"

    def test_a_mailer_that_was_not_told_is_told_by_the_next_run(self, machine):
        machine.reconcile([ALICE])
        machine.write("etc/aliases.db", "old")
        os.utime(machine.root / "etc/aliases.db", ns=(0, 0))
        machine.log.clear()
        assert machine.reconcile([ALICE]).changed
        assert machine.log == ["newaliases"]
        os.utime(machine.root / "etc/aliases", ns=(0, 0))
        assert not machine.reconcile([ALICE]).changed


class TestLeaving:
    @pytest.fixture
    def left(self, machine):
        machine.reconcile([ALICE, BOB, CAROL])
        machine._append("etc/group", "docker:x:999:bob,carol")
        leave_traces(machine, "bob", 1001)
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
        entry = registered(machine, "bob")
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
        assert registered(machine, "bob").archive == ""
        assert not machine.reconcile([ALICE, BOB, CAROL]).changed

    @pytest.mark.usefixtures("left")
    def test_who_comes_back_to_a_second_home_keeps_both(self, machine):
        machine.write("home/bob/new.txt", "")
        machine.own("home/bob", 1001)
        outcome = machine.reconcile([ALICE, BOB, CAROL])
        assert "bob came back and has both /home/bob and the archive" in "".join(outcome.warnings)
        assert machine.read("home/.gpulab-archive/bob/results.txt") == "42"
        assert registered(machine, "bob").archive == "/home/.gpulab-archive/bob"
        assert not machine.reconcile([ALICE, BOB, CAROL]).changed

    def test_somebody_who_was_never_here_cannot_leave(self, machine):
        machine.reconcile([ALICE])
        assert not machine.reconcile([ALICE, BOB | GONE]).changed
        assert machine.line("etc/passwd", "bob") == []

    def test_an_account_that_was_deleted_by_hand_leaves_its_home_in_the_archive(self, machine):
        machine.reconcile([ALICE, BOB])
        delete(machine, "bob")
        machine.reconcile([ALICE, BOB | GONE])
        assert (machine.root / "home/.gpulab-archive/bob").exists()

    @pytest.mark.usefixtures("left")
    def test_an_account_that_was_deleted_by_hand_is_made_again_with_its_number(self, machine):
        machine.reconcile([ALICE, BOB, CAROL])
        delete(machine, "bob")
        machine.kill_at = len(machine.touches) + 1
        with pytest.raises(Killed):
            machine.reconcile([ALICE, BOB, CAROL])
        machine.reconcile([ALICE, BOB, CAROL])
        assert machine.line("etc/passwd", "bob")[2] == "1001"
        assert [event.what for event in registered(machine, "bob").history] == ["created", "created"]

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
        leave_traces(machine, "bob", 1001)
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
        machine.reconcile(members)
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
        assert registered(machine, "bob").archive == "/home/bob"
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
        assert registered(machine, "bob").state == "leaving"
        machine.stubborn.clear()
        assert machine.reconcile(members).errors == []
        assert registered(machine, "bob").state == "absent"

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

    BEFORE = (ALICE, BOB, CAROL, {"name": "dan"})
    AWAY = (ALICE, BOB, CAROL | GONE, {"name": "dan"})
    AFTER = (
        ALICE | {"full_name": "Alice L"},
        BOB | GONE,
        CAROL | {"groups": ["vision"]},
        {"name": "dan", "shell": "/usr/bin/zsh", "ssh_keys": [ED25519]},
        {"name": "erin", "groups": ["audio-lab"]},
    )

    def start(self, root, monkeypatch):
        root.mkdir()
        machine = Machine(root)
        machine.reconcile(list(self.BEFORE))
        leave_traces(machine, "carol", 1002)
        machine.reconcile(list(self.AWAY))
        leave_traces(machine, "bob", 1001)
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
        assert registered(machine, "bob").state == "creating"


class TestLockingOut:
    def test_without_own_keys_the_admin_needs_one_in_the_list(self, machine):
        with pytest.raises(InputError, match="lab_admin is alice, who has no ssh_keys"):
            machine.reconcile([ALICE | {"ssh_keys": []}, BOB], allow_own_keys=False)
        assert machine.reconcile([ALICE, BOB], allow_own_keys=False).errors == []

    def test_keys_that_sshd_reads_elsewhere_are_noticed(self, machine):
        machine.write("etc/ssh/sshd_config", "Include /etc/ssh/sshd_config.d/*.conf\nAuthorizedKeysFile /srv/%u\n")
        with pytest.raises(InputError, match="lets sshd read keys from /srv/%u"):
            machine.reconcile([ALICE])
        assert machine.reconcile([ALICE], extra_key_files=("/srv/%u",)).errors == []


class TestRegister:
    def test_it_is_for_root_only(self, machine):
        machine.reconcile([ALICE])
        assert (machine.root / "var/lib/gpulab/members/registry.json").stat().st_mode & 0o777 == 0o600
        assert (machine.root / "var/lib/gpulab/members").stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize(
        "text", ["[]", "{}", '{"version": 1, "members": [{}]}', '{"version": 1, "members": 3}', "not json", '"x"']
    )
    def test_a_damaged_one_stops_the_run_before_anything_changes(self, machine, text):
        machine.write("var/lib/gpulab/members/registry.json", text)
        with pytest.raises(GpulabError, match=r"registry\.json"):
            machine.reconcile([ALICE])
        assert machine.log == []

    def test_one_of_a_newer_version_is_not_touched(self, machine):
        machine.write("var/lib/gpulab/members/registry.json", json.dumps({"version": 2, "members": []}))
        with pytest.raises(GpulabError, match="is of version 2; this gpulab reads version 1"):
            machine.reconcile([ALICE])
