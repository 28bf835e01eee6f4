from __future__ import annotations

import json

import pytest
from gpulab.commands.members import main
from gpulab.errors import NotPermittedError
from members_machine import Machine

ALICE = {"name": "alice", "admin": True}


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    machine.reconcile([ALICE, {"name": "bob"}])
    machine.reconcile([ALICE, {"name": "bob", "state": "absent"}])
    return machine


def test_lists_who_is_here_and_who_left(machine, capsys):
    assert main([], root=machine.root) == 0
    assert capsys.readouterr().out.splitlines() == [
        "NAME   UID   STATE    SINCE       ADMIN  HOME",
        "alice  1000  present  2026-12-01  yes    /home/alice",
        "bob    1001  absent   2026-12-01         /home/.gpulab-archive/bob",
    ]


def test_says_what_is_wrong_with_an_account(machine, capsys):
    machine.write("etc/passwd", machine.read("etc/passwd").replace("bob:x:1001", "bob:x:1005").replace("alice:", "al:"))
    main([], root=machine.root)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("(the account is gone)")
    assert lines[2].endswith("(the account has uid 1005 now)")


def test_json_has_the_history(machine, capsys):
    main(["--json"], root=machine.root)
    bob = json.loads(capsys.readouterr().out)[1]
    assert (bob["name"], bob["state"], bob["admin"], bob["problem"]) == ("bob", "absent", False, "")
    assert [event["what"] for event in bob["history"]] == ["created", "left"]


def test_says_so_when_there_is_nobody_yet(tmp_path, capsys):
    assert main([], root=Machine(tmp_path).root) == 0
    assert "no managed accounts yet" in capsys.readouterr().out


def test_members_are_told_to_use_sudo(machine, monkeypatch):
    def forbidden(_):
        raise PermissionError(13, "Permission denied", "/var/lib/gpulab/members/registry.json")

    monkeypatch.setattr("gpulab.commands.members.read_registry", forbidden)
    with pytest.raises(NotPermittedError, match="use sudo gpulab members"):
        main([], root=machine.root)
