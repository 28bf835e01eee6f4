"""Members on a small machine: they come, stay as listed, and nobody else notices."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from gpulab.errors import GpulabError, InputError
from members_machine import ALICE, BOB, CAROL, GONE, Machine
from test_ssh_keys import ED25519

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


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
        machine.delete("bob")
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
        assert machine.registered("bob").uid == 1500

    def test_a_listed_name_changes_only_the_name_in_the_comment(self, machine):
        self.person(machine)
        machine.reconcile([ALICE, BOB | {"full_name": "Robert"}])
        assert machine.line("etc/passwd", "bob")[4] == "Robert,room 7"

    def test_what_an_account_file_holds_does_no_harm_on_a_terminal(self, machine):
        self.person(machine)
        passwd = (machine.root / "etc/passwd").read_bytes().replace(b"Bob,room 7", b"B\xf6b\x1b[2J")
        (machine.root / "etc/passwd").write_bytes(passwd)
        told = machine.reconcile([ALICE, BOB], dry_run=True)
        assert "full name: B\\xf6b\\x1b[2J\n" in told.differences[1].before
        json.dumps(told.differences, ensure_ascii=False).encode()

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
            ({"name": "visitor"}, [CAROL | {"groups": ["adm"]}], "groups is 'adm'; that group belongs to the system"),
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
