"""Role members: who is in the list can work, who left cannot, and nobody else notices anything."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Play
    from testinfra.backend.base import CommandResult
    from testinfra.host import Host

SSH = "ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new -o ConnectTimeout=10 -o LogLevel=ERROR"


def ssh(host: Host, user: str, command: str, key: str = "id_ed25519") -> CommandResult:
    """Log in over the network as somebody with one of the keys, and type a command."""
    return host.run(f"{SSH} -o IdentitiesOnly=yes -i /root/.ssh/{key} {user}@localhost {shlex.quote(command)}")


def lab_members(host: Host, members: list[dict[str, Any]]) -> dict[str, Any]:
    """Call the module with another list, as the next run of the playbook would."""
    name = host.backend.name.removeprefix("gpulab-members-")
    arguments = json.dumps({"members": members, "lab_admin": "alice", "grace": 5})
    command = ["ansible", name, "-i", os.environ["MOLECULE_INVENTORY_FILE"], "-m", "lab_members", "-a", arguments]
    environment = os.environ | {"ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.json", "ANSIBLE_LOAD_CALLBACK_PLUGINS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout)["plays"][0]["tasks"][0]["hosts"][name]
    return result


@pytest.fixture
def listed(host: Host) -> list[dict[str, Any]]:
    """Return the list that the role was given."""
    key = host.file("/root/.ssh/id_ed25519.pub").content_string.strip()
    return [
        {"name": "alice", "full_name": "Alice", "mail": "alice@example.org", "admin": True, "ssh_keys": [key]},
        {"name": "bob", "groups": ["vision"], "ssh_keys": [key]},
        {"name": "carol", "ssh_keys": [key], "state": "absent"},
    ]


def test_members_log_in_with_the_key_in_the_list(host: Host) -> None:
    login = ssh(host, "alice", "whoami; id --groups --name")
    assert login.rc == 0, login.stderr
    assert set(login.stdout.split()) == {"alice", "gpu-admins", "gpu-members"}


def test_who_came_back_finds_everything_again(host: Host) -> None:
    login = ssh(host, "bob", "cat thesis.txt; echo; stat --format %U thesis.txt; id --groups --name; echo $SHELL")
    assert login.rc == 0, login.stderr
    text, owner, groups, shell = login.stdout.splitlines()
    assert text == "chapter one"
    assert owner == "bob", "the account has the number it had before"
    assert set(groups.split()) == {"bob", "gpu-members", "vision"}
    assert shell == "/bin/bash"


def test_members_cannot_change_whose_keys_open_an_account(host: Host, as_member: Callable[..., CommandResult]) -> None:
    assert as_member("bob", "cat /root/.ssh/own.pub >>/etc/ssh/authorized_keys.d/bob").rc != 0
    assert as_member("bob", "rm -f /etc/ssh/authorized_keys.d/alice").rc != 0
    assert ssh(host, "alice", "true").rc == 0


def test_members_own_keys_go_on_working(host: Host) -> None:
    assert ssh(host, "alice", "true", key="own").rc != 0
    host.run_test("install -d -o alice -g alice -m 700 /home/alice/.ssh")
    host.run_test("install -o alice -g alice -m 600 /root/.ssh/own.pub /home/alice/.ssh/authorized_keys")
    assert ssh(host, "alice", "true", key="own").rc == 0


def test_only_admins_become_root(host: Host) -> None:
    assert ssh(host, "alice", "sudo --non-interactive id --user").stdout.strip() == "0"
    assert ssh(host, "bob", "sudo --non-interactive id --user").rc != 0


def test_members_cannot_look_into_each_others_homes(host: Host) -> None:
    assert ssh(host, "bob", "ls /home/alice").rc != 0
    assert ssh(host, "bob", "ls /home/.gpulab-archive").rc != 0


def test_one_member_cannot_take_every_process(host: Host) -> None:
    assert "TasksMax=8192" in ssh(host, "bob", "systemctl show --property TasksMax user-$(id --user).slice").stdout


def test_who_left_cannot_log_in(host: Host) -> None:
    assert ssh(host, "carol", "true").rc != 0
    assert ssh(host, "carol", "true", key="own").rc != 0
    assert "expired" in host.run("su carol -c true").stderr + host.run("journalctl --no-pager --grep carol").stdout


def test_nothing_of_who_left_runs_any_more(host: Host) -> None:
    assert host.run("pgrep --uid carol --list-full").stdout == ""
    assert host.run("crontab -l -u carol").rc != 0
    assert host.run("atq").stdout == ""
    assert not host.file("/var/lib/systemd/linger/carol").exists


def test_cards_that_who_left_had_booked_are_free(host: Host) -> None:
    rows = host.file("/home/admin/gpu_schedule.csv").content_string.splitlines()[1:]
    assert [row.rpartition(",")[2] for row in rows] == ["cancelled", "booked"]


def test_processes_of_who_left_could_save_their_work(host: Host) -> None:
    assert host.file("/home/.gpulab-archive/carol/checkpoint.txt").content_string == "saved\n"


def test_the_work_of_who_left_is_kept(host: Host) -> None:
    assert not host.file("/home/carol").exists
    assert host.file("/home/.gpulab-archive/carol/results.txt").content_string == "results\n"
    assert host.file("/home/.gpulab-archive").mode == 0o700
    assert host.user("carol").uid == 1600
    assert host.user("carol").groups == ["carol"]


def test_people_outside_the_list_notice_nothing(host: Host) -> None:
    assert host.run("/root/describe-visitor").stdout == host.file("/root/visitor.before").content_string
    assert ssh(host, "visitor", "cat results.txt", key="own").stdout == "results\n"


def test_mail_for_root_goes_to_the_admin_and_own_aliases_stay(host: Host) -> None:
    lines = host.file("/etc/aliases").content_string.splitlines()
    assert lines[:2] == ["# the admin's own line", "webmaster: root"]
    assert [line for line in lines[2:] if not line.startswith("#")] == ["root: alice"]


def test_somebody_leaves_in_the_middle_of_a_session_and_returns(host: Host, listed: list[dict[str, Any]]) -> None:
    ssh(host, "bob", "nohup train >/dev/null 2>&1 & echo started")
    assert host.run("pgrep --uid bob").rc == 0
    gone = lab_members(host, [member | ({"state": "absent"} if member["name"] == "bob" else {}) for member in listed])
    assert gone["changed"], gone
    assert host.run("pgrep --uid bob").rc != 0
    assert ssh(host, "bob", "true").rc != 0

    back = lab_members(host, listed)
    assert back["members"]["bob"][0] == "returned"
    assert ssh(host, "bob", "cat checkpoint.txt thesis.txt").stdout == "saved\nchapter one"
    assert not lab_members(host, listed)["changed"]


def test_who_vanishes_from_the_list_is_reported_and_left_alone(host: Host, listed: list[dict[str, Any]]) -> None:
    result = lab_members(host, [member for member in listed if member["name"] != "bob"])
    assert not result["changed"]
    assert "bob is managed here but no longer in lab_members" in str(result["warnings"])
    assert ssh(host, "bob", "true").rc == 0


@pytest.mark.parametrize(
    ("member", "line"),
    [
        ({"name": "visitor", "uid": 1501}, "uid is 1501, but the account has 1500"),
        ({"name": "messagebus"}, "the name messagebus belongs to the system"),
        ({"name": "newcomer", "groups": ["crontab"]}, "groups is 'crontab'; that group belongs to the system"),
        ({"name": "newcomer", "uid": 1500}, "uid 1500 is or was visitor's"),
        ({"name": "newcomer", "shell": "/bin/zsh"}, "shell is /bin/zsh, which cannot be run on this server"),
    ],
)
def test_what_would_take_somebody_elses_is_refused(
    host: Host, listed: list[dict[str, Any]], member: dict[str, Any], line: str
) -> None:
    before = host.run("cat /etc/passwd /etc/group /var/lib/gpulab/members/registry.json").stdout
    result = lab_members(host, [*listed, member])
    assert result["failed"]
    assert line in result["msg"]
    assert "\n" not in result["msg"]
    assert host.run("cat /etc/passwd /etc/group /var/lib/gpulab/members/registry.json").stdout == before


def test_a_reload_that_was_missed_is_made_up_for(host: Host, play: Play) -> None:
    """As after a run that was killed between writing sshd's settings and telling sshd."""
    host.run_test("touch /etc/ssh/sshd_config.d/50-gpulab.conf")
    done = play()
    assert done.returncode == 0, done.stdout
    assert "changed=1" in done.stdout
    unread = host.run("find /etc/ssh/sshd_config.d/50-gpulab.conf -newer /run/sshd.pid").stdout
    assert unread == ""
    assert ssh(host, "alice", "true").rc == 0
