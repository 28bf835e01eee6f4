"""Role datasets: readers see whole datasets and cannot write, curators have one way in, and nobody else has any."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Person, Play
    from testinfra.host import Host

PATH = "/data/datasets"
STORE = "/data/.datasets"
PUBLISHED = f"{PATH}/coco-2017"
ADD = "gpu-dataset add coco-2017 coco --source https://cocodataset.org --licence 'CC BY 4.0' --sums sums"
MAKE = (
    "rm -rf coco sums && mkdir -p coco/train && head -c 3000000 /dev/urandom > coco/train/1.bin && "
    "ln -s train/1.bin coco/first && cd coco && sha256sum train/1.bin > ../sums"
)


@pytest.fixture(scope="module", autouse=True)
def _published(host: Host, as_member: Person) -> Iterator[None]:
    """Have carol publish a dataset, and remove it in the end."""
    for command in (MAKE, ADD, "gpu-dataset publish coco-2017"):
        done = as_member("carol", command)
        assert done.rc == 0, done.stderr
    yield
    host.run("gpu-dataset remove coco-2017 --yes")


def test_everybody_sees_what_there_is(as_member: Person) -> None:
    shown = as_member("bob", "gpu-dataset list").stdout
    assert shown.splitlines()[1].split() == [
        "coco-2017",
        "2.9",
        "MiB",
        "1",
        "CC",
        "BY",
        "4.0",
        "https://cocodataset.org",
    ]
    about = as_member("bob", "gpu-dataset list coco-2017").stdout
    assert "published_by: carol" in about
    checked = as_member("bob", f"cd {PUBLISHED} && sha256sum --check .gpulab-sha256")
    assert checked.stdout == "train/1.bin: OK\n"


@pytest.mark.parametrize("user", ["bob", "carol", "root"])
def test_nobody_writes_through_the_folder(host: Host, user: str) -> None:
    for command in (f"touch {PUBLISHED}/train/1.bin", f"mkdir {PATH}/mine", f"rm -f {PUBLISHED}/first"):
        tried = host.run(f"runuser -u {user} -- {command}")
        assert tried.rc != 0
        assert "Read-only file system" in tried.stderr or ("Permission denied" in tried.stderr and user != "root")


def test_members_cannot_reach_or_exchange_the_store(host: Host, as_member: Person) -> None:
    # Members may write to /data here, which is sticky.
    for user in ("bob", "carol"):
        for command in (f"ls {STORE}", f"ls {STORE}/published", f"mv {STORE} /data/away", f"rmdir {PATH}"):
            assert as_member(user, command).rc != 0, command
    assert host.check_output(f"stat -c '%U %a' {STORE}") == "root 700"


def test_only_curators_change_datasets(host: Host, as_member: Person) -> None:
    refused = as_member("bob", "gpu-dataset add mine /etc/hostname --source here --licence none")
    assert refused.rc != 0
    assert "only curators may do that: carol" in refused.stderr
    assert as_member("bob", "gpu-dataset remove coco-2017 --yes").rc != 0
    # Carol may say what she likes to root's part; who asks it is told by sudo.
    writer = "sudo -n /opt/gpulab/current/bin/gpulab dataset-write"
    for words in ("x", '{"verb": "remove"}'):
        assert '"error"' in as_member("carol", f"echo '{words}' | SUDO_UID=0 {writer}").stdout
    assert as_member("carol", f"{writer} --help").rc != 0
    assert as_member("carol", "sudo -n id").rc != 0
    assert host.file(PUBLISHED).is_directory


def test_root_reads_no_file_for_a_curator(as_member: Person) -> None:
    for folder in ("/etc/shadow", "/root"):
        tried = as_member("carol", f"gpu-dataset add secret {folder} --source here --licence none")
        assert "Permission denied" in tried.stderr
    tried = as_member("carol", "mkdir -p l && ln -sfn /etc/shadow l/x && gpu-dataset add l l --source s --licence l")
    assert "the link x leads out of the dataset, to /etc/shadow" in tried.stderr
    assert as_member("carol", "gpu-dataset list --staged").stdout == "nothing waits to be published\n"


def test_what_is_published_counts_for_nobody(host: Host) -> None:
    assert host.check_output(f"find {PATH} ! -user root -o ! -group root -o -perm /022 ! -type l") == ""


def test_a_file_with_another_sum_is_not_taken(as_member: Person) -> None:
    tried = as_member("carol", "echo >> coco/train/1.bin; " + ADD.replace("coco-2017", "broken"))
    assert "train/1.bin does not have the sum it should; fetch it again" in tried.stderr
    assert "broken" not in as_member("carol", "gpu-dataset list --staged").stdout


def test_a_copy_that_is_broken_off_leaves_nothing(host: Host, as_member: Person) -> None:
    as_member("carol", "mkdir -p slow && truncate -s 3G slow/big")
    command = "timeout --signal=INT 0.7 gpu-dataset add slow slow --source here --licence none"
    assert as_member("carol", command).rc != 0
    host.run("for i in $(seq 50); do pgrep -f dataset-write || break; sleep 0.2; done")
    as_member("carol", MAKE)
    assert as_member("carol", ADD.replace("coco-2017", "next")).rc == 0
    assert host.check_output(f"ls -A {STORE}/incoming {STORE}/removed {STORE}/staged").split() == [
        f"{STORE}/incoming:",
        f"{STORE}/removed:",
        f"{STORE}/staged:",
        "next",
    ]
    assert as_member("carol", "gpu-dataset remove next --yes && rm -r slow").rc == 0


def test_the_admin_is_shown_who_has_copies_at_home(host: Host, as_member: Person) -> None:
    as_member(
        "bob", f"cp {PUBLISHED}/train/1.bin mine.bin && ln -sfn / everything && head -c 3000000 /dev/zero > other"
    )
    shown = host.check_output("gpulab datasets copies")
    assert "bob has 2.9 MiB at home that is published already:\n" in shown
    assert f"  /home/bob/mine.bin (2.9 MiB) = {PUBLISHED}/train/1.bin" in shown
    assert "other" not in shown
    assert "everything" not in shown
    assert "only root" in as_member("bob", "gpulab datasets copies").stderr
    as_member("bob", "rm mine.bin everything other")


def test_the_way_out_keeps_the_datasets_and_the_way_back_shows_them(host: Host, play: Play) -> None:
    for expected in (True, False):
        run = play(playbook="role.yml", datasets_enabled=False)
        assert run.returncode == 0, run.stdout
        assert ("changed=0" not in run.said) == expected
    for path in ("/etc/sudoers.d/gpulab-datasets", "/usr/local/bin/gpu-dataset", "/etc/cron.d/gpulab-datasets", PATH):
        assert not host.file(path).exists
    assert PATH not in host.file("/etc/fstab").content_string
    assert host.file(f"{STORE}/published/coco-2017/train/1.bin").exists
    assert play(playbook="role.yml").returncode == 0
    assert host.file(f"{PUBLISHED}/train/1.bin").exists


def test_what_cannot_be_is_refused_in_one_line(host: Host, play: Play) -> None:
    run = play(playbook="role.yml", datasets_path="/nowhere/datasets", datasets_enabled=True)
    assert "there is no folder /nowhere; make it, or set datasets_enabled: false" in run.said
    assert "changed=0" in run.said
    host.run_expect([0], "mkdir -p /srv/old/coco")
    run = play(playbook="role.yml", datasets_path="/srv/old", datasets_store="/srv/.old")
    assert "/srv/old holds 1 things already, which would be hidden; move them elsewhere" in run.said
    assert "changed=0" in run.said
    assert host.file("/srv/old/coco").is_directory
    run = play(playbook="role.yml", datasets_curators=["ALL"])
    assert "expected account names" in run.said
    assert "ALL ALL" not in host.file("/etc/sudoers.d/gpulab-datasets").content_string
