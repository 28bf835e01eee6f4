"""The server is lost, and a new one under its name gets what people owned. Runs last: it costs the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Person, Play
    from testinfra.host import Host


def owned(host: Host) -> dict[str, str]:
    """Return what members would miss."""
    return {
        "accounts": host.check_output("getent passwd alice bob carol"),
        "password": host.check_output("getent shadow bob | cut -d: -f2"),
        "bookings": host.check_output("cat /home/admin/gpu_schedule.csv"),
        "who changed them": host.check_output("cat /var/lib/gpulab/booking/audit.jsonl"),
    }


def test_a_lost_server_comes_back_from_its_backup(
    host: Host, as_member: Person, play: Play, lose: Callable[[str], None], tmp_path: Path
) -> None:
    host.run_expect([0], "echo bob:correct-horse | chpasswd")
    assert as_member("bob", "gpu-schedule add kept --gpu 0 --start now --hours 3").rc == 0
    before = owned(host)
    saved = play(playbook="../../playbooks/backup.yml", backup_folder=str(tmp_path))
    assert saved.returncode == 0, saved.stdout
    assert len(list(tmp_path.glob("*.tar.gz"))) == 1
    assert not host.file("/var/lib/gpulab/backup").exists

    refused = play(playbook="../../playbooks/restore.yml", backup_folder=str(tmp_path / "none"))
    assert "There is no backup of" in refused.said
    as_member("bob", "gpu-schedule add newer --gpu 3 --start now --hours 1")
    settings = host.check_output("gpulab settings")
    refused = play(playbook="../../playbooks/restore.yml", backup_folder=str(tmp_path))
    assert "this server has data of its own (/home/admin/gpu_schedule.csv" in refused.said
    assert host.check_output("gpulab settings") == settings
    assert "newer" in as_member("bob", "gpu-schedule list").stdout
    lose("../shared/prepare.yml")

    # In another order, new accounts would get other numbers.
    people = [
        {"name": "carol"},
        {"name": "bob", "mail": "bob@example.org", "gpu": "mig-3-0"},
        {"name": "alice", "full_name": "Alice", "mail": "alice@example.org", "admin": True},
    ]
    done = play(playbook="../../playbooks/restore.yml", backup_folder=str(tmp_path), lab_members=people)
    assert done.returncode == 0, done.stdout
    assert owned(host) == before
    assert "kept" in as_member("carol", "gpu-schedule list").stdout
