"""A Slurm server is lost, and a new one under its name knows who used how much. Runs last: it costs the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Person, Play
    from testinfra.host import Host

ACCOUNTS = "sacctmgr --noheader --parsable2 show assoc format=account,user,grptres,fairshare"


def owned(host: Host, job: str) -> dict[str, str]:
    """Return what members and the admin would miss."""
    return {
        "accounts on the server": host.check_output("getent passwd alice bob carol member12"),
        "accounts in Slurm": host.check_output(f"{ACCOUNTS} | sort"),
        "the job": host.check_output(
            f"TZ=UTC sacct --noheader --parsable2 -X -j {job} -o jobid,user,state,alloctres,start,end"
        ),
    }


def test_a_lost_server_comes_back_with_its_accounting(
    host: Host, as_member: Person, play: Play, lose: Callable[[str], None], tmp_path: Path
) -> None:
    ran = as_member("bob", "sbatch --parsable --wait --gres=gpu:1 --wrap 'sleep 3'")
    assert ran.rc == 0, ran.stderr
    job = ran.stdout.strip()
    host.run_expect(
        [0], f"timeout 60 sh -c 'until sacct -n -X -j {job} -o state | grep -q COMPLETED; do sleep 1; done'"
    )
    before = owned(host, job)
    assert "gres/gpu=1" in before["the job"]
    saved = play(playbook="../../playbooks/backup.yml", backup_folder=str(tmp_path))
    assert saved.returncode == 0, saved.stdout
    lose("../shared/prepare_jobs.yml")

    done = play(playbook="../../playbooks/restore.yml", backup_folder=str(tmp_path))
    assert done.returncode == 0, done.stdout
    assert owned(host, job) == before
    again = as_member("bob", "sbatch --parsable --wait --gres=gpu:1 --wrap true")
    assert again.rc == 0, again.stderr
    assert int(again.stdout.strip()) > int(job), "a number that was given twice would mix up two jobs"
    assert "changed=0" in play().stdout
