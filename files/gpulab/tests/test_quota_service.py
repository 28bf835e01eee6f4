"""Disk limits as a service: one look, only what differs, nothing by half, and the whole way back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from gpulab.adapters.mail import MailError
from gpulab.errors import GpulabError, InputError
from gpulab.rules.quota import Limits, Policy, parse_policy
from gpulab.services.quota import bring_back, read_note, reconcile
from gpulab.services.quota_check import check, look, own
from gpulab.settings import Settings
from quota_machine import PROJECT, USER, Machine

GIB = 1 << 30
PEOPLE = {"alice": 1000, "bob": 1001, "carol": 1002}


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path, PEOPLE)


def ask(machine, *folders, members=PEOPLE, projects=(), overrides=(), dry_run=False):
    raw = {"folders": list(folders), "projects": list(projects), "overrides": list(overrides)}
    return reconcile(parse_policy(raw, members), members, machine.world, dry_run=dry_run)


def test_limits_are_given_and_a_second_call_changes_nothing(machine):
    home = machine.disk("home", "xfs", counted=[USER], enforced=[USER])
    entry = {"path": home, "soft": "1G", "hard": "2G"}
    bobs = {"member": "bob", "path": home, "hard": "5G"}
    outcome = ask(machine, entry, overrides=[bobs])
    assert outcome.changed
    assert machine.kernel.limits[home, USER, 1001] == Limits(GIB, 5 * GIB)
    assert machine.kernel.limits[home, USER, 1002] == Limits(GIB, 2 * GIB)
    (report,) = outcome.file_systems
    assert report.enforced
    assert report.after[1] == "bob: soft/hard 1 GiB/5 GiB"
    machine.kernel.writes = 0
    assert not ask(machine, entry, overrides=[bobs]).changed
    assert machine.kernel.writes == 0


def test_a_check_changes_nothing_and_foretells_the_same(machine):
    home = machine.disk("home", "xfs", counted=[USER], enforced=[USER])
    entry = {"path": home, "hard": "2G"}
    foreseen = ask(machine, entry, dry_run=True)
    assert machine.kernel.limits == {}
    assert not (machine.root / "etc/gpulab").exists()
    assert not (machine.root / "var").exists()
    assert ask(machine, entry).file_systems[0].after == foreseen.file_systems[0].after


def test_where_nothing_was_given_nothing_is_made(machine):
    assert not reconcile(Policy(), (), machine.world).changed
    assert not (machine.root / "var").exists()


def test_what_was_changed_by_hand_comes_back(machine):
    home = machine.disk("home", "xfs", counted=[USER], enforced=[USER])
    entry = {"path": home, "hard": "2G"}
    ask(machine, entry)
    machine.kernel.limits[home, USER, 1001] = Limits()
    assert bring_back(machine.world).file_systems[0].after == ["bob: soft/hard -/2 GiB"]
    assert machine.kernel.limits[home, USER, 1001] == Limits(hard=2 * GIB)


def test_a_thousand_members_are_read_once_and_written_once(tmp_path):
    people = {f"member{number:04}": 2000 + number for number in range(1000)}
    machine = Machine(tmp_path, people)
    points = [machine.disk(name, "xfs", counted=[USER], enforced=[USER]) for name in ("home", "data")]
    ask(machine, *({"path": point, "hard": "2G"} for point in points), members=people)
    assert machine.kernel.writes == 2000
    machine.kernel.reads = 0
    ask(machine, *({"path": point, "hard": "2G"} for point in points), members=people)
    assert (machine.kernel.reads, machine.kernel.writes) == (2000, 2000)


def test_who_leaves_keeps_no_limit_and_strangers_are_never_touched(machine):
    home = machine.disk("home", "xfs", counted=[USER], enforced=[USER])
    machine.kernel.limits[home, USER, 1700] = Limits(hard=GIB)
    entry = {"path": home, "hard": "2G"}
    ask(machine, entry)
    ask(machine, entry, members=["alice", "bob"])
    assert machine.kernel.limits[home, USER, 1002] == Limits()
    assert machine.kernel.limits[home, USER, 1700] == Limits(hard=GIB)


def test_ext4_that_counts_is_told_to_enforce_and_is_let_go_at_the_end(machine):
    fast = machine.disk("fast", "ext4", counted=[USER])
    outcome = ask(machine, {"path": fast, "hard": "2G"})
    assert outcome.file_systems[0].steps == ["enforce the limits of members"]
    assert machine.kernel.enforced[fast] == {USER}
    reconcile(Policy(), (), machine.world)
    assert machine.kernel.enforced[fast] == set()
    assert set(machine.kernel.limits.values()) == {Limits()}


def test_ext4_that_does_not_count_gets_journaled_files_and_loses_them_at_the_end(machine):
    home = machine.disk("home", "ext4")
    entry = {"path": home, "hard": "2G"}
    foreseen = ask(machine, entry, dry_run=True)
    assert machine.ran == []
    assert foreseen.file_systems[0].steps == ["count and enforce the limits of members", "set the limits of 3 members"]
    ask(machine, entry)
    assert [command[0] for command in machine.ran] == ["mount", "quotacheck", "quotaon"]
    assert machine.ran[0] == ["mount", "-o", "remount,usrjquota=aquota.user,jqfmt=vfsv1", home]
    assert machine.kernel.limits[home, USER, 1001] == Limits(hard=2 * GIB)
    machine.ran.clear()
    assert not ask(machine, entry).changed
    assert machine.ran == []
    reconcile(Policy(), (), machine.world)
    assert [command[0] for command in machine.ran] == ["quotaoff", "mount"]


def test_what_was_enforced_before_stays_so(machine):
    home = machine.disk("home", "ext4", counted=[USER], enforced=[USER])
    ask(machine, {"path": home, "hard": "2G"})
    reconcile(Policy(), (), machine.world)
    assert machine.kernel.enforced[home] == {USER}
    assert machine.ran == []


def test_xfs_without_quota_waits_and_is_served_after_its_next_mount(machine):
    data = machine.disk("data", "xfs")
    before = f"/dev/data {data} xfs defaults 0 0\n"
    (machine.root / "etc/fstab").write_text(before)
    outcome = ask(machine, {"path": data, "hard": "2G"})
    assert (machine.root / "etc/fstab").read_text() == before.replace("defaults", "defaults,uquota")
    assert f"umount {data} && mount {data}" in outcome.warnings[0]
    assert not outcome.file_systems[0].enforced
    again = ask(machine, {"path": data, "hard": "2G"})
    assert not again.changed
    assert again.warnings == outcome.warnings
    machine.kernel.mount(data, counted=[USER], enforced=[USER])  # the reboot
    bring_back(machine.world)
    assert machine.kernel.limits[data, USER, 1000] == Limits(hard=2 * GIB)
    reconcile(Policy(), (), machine.world)
    assert (machine.root / "etc/fstab").read_text() == before


def test_a_folder_that_is_not_mounted_at_boot_is_left_alone(machine):
    data = machine.disk("data", "xfs", counted=[USER], enforced=[USER])
    ask(machine, {"path": data, "hard": "2G"})
    machine.mounts.pop()
    outcome = bring_back(machine.world)
    assert machine.kernel.enforced["/"] == set()
    assert "not mounted where it was" in outcome.warnings[0]
    assert read_note(machine.root) is not None
    assert json.loads((machine.root / "var/lib/gpulab/quota/given.json").read_text())[data]["users"] == [
        1000,
        1001,
        1002,
    ]


def test_a_bad_entry_changes_nothing_at_all(machine):
    home = machine.disk("home", "xfs", counted=[USER], enforced=[USER])
    tank = machine.disk("tank", "zfs", source="tank/data")
    with pytest.raises(InputError, match="zfs set userquota"):
        ask(machine, {"path": home, "hard": "2G"}, {"path": tank, "hard": "2G"})
    with pytest.raises(InputError, match="there is no folder"):
        ask(machine, {"path": home, "hard": "2G"}, {"path": f"{home}/none", "hard": "2G"})
    assert machine.kernel.limits == {}


def test_a_limit_below_present_use_is_allowed_and_said(machine):
    home = machine.disk("home", "xfs", counted=[USER], enforced=[USER])
    machine.kernel.used[home, 1001] = (3 * GIB, 10)
    outcome = ask(machine, {"path": home, "hard": "2G"})
    said = f"bob at {home}: 3 GiB used, over the hard limit of 2 GiB; nothing is deleted, new writes fail"
    assert outcome.warnings == [said]
    assert machine.kernel.limits[home, USER, 1001] == Limits(hard=2 * GIB)


def test_projects_get_numbers_of_their_own_and_keep_one_they_have(machine):
    data = machine.disk("data", "xfs", counted=[PROJECT], enforced=[PROJECT])
    folders = {}
    for name in ("vision", "speech", "old"):
        (machine.folder / "data" / name).mkdir()
        folders[name] = f"{data}/{name}"
    machine.projects[folders["old"]] = 7
    entries = [{"path": path, "hard": "1G"} for path in folders.values()]
    ask(machine, projects=entries)
    assert machine.projects == {folders["vision"]: 4000, folders["speech"]: 4001, folders["old"]: 7}
    assert machine.kernel.limits[data, PROJECT, 4001] == Limits(hard=GIB)
    assert not ask(machine, projects=entries).changed
    ask(machine, projects=entries[:1])
    assert machine.projects[folders["speech"]] == 0
    assert machine.kernel.limits[data, PROJECT, 4001] == Limits()
    assert [each.owner for each in look(machine.world).projects] == [folders["vision"]]


def test_projects_on_an_ext4_without_the_feature_are_refused_with_the_way(machine):
    data = machine.disk("data", "ext4", counted=[USER], enforced=[USER])
    with pytest.raises(InputError, match="tune2fs -O project,quota -Q usrquota,prjquota /dev/data"):
        ask(machine, {"path": data, "hard": "2G"}, projects=[{"path": data, "hard": "1G"}])
    with pytest.raises(InputError, match="add quota_v2 to /etc/initramfs-tools/modules"):
        ask(machine, projects=[{"path": str(machine.folder), "hard": "1G"}])
    assert machine.kernel.limits == {}


def test_a_kernel_that_keeps_nothing_is_not_believed(machine):
    home = machine.disk("home", "xfs", counted=[USER], enforced=[USER])
    machine.kernel.set_limits = lambda *_: None
    with pytest.raises(GpulabError, match="the kernel did not keep the limits"):
        ask(machine, {"path": home, "hard": "2G"})


def mails(machine, sent, refuse=()):
    def send(recipient, subject, body):
        if recipient in refuse:
            raise MailError(f"mail to {recipient} was not sent")
        sent.append((recipient, subject, body))

    return check(machine.world, Settings(), send, "gpu1")


def test_whoever_is_near_a_limit_is_mailed_once(machine):
    home = machine.disk("home", "xfs", counted=[USER], enforced=[USER])
    ask(machine, {"path": home, "soft": "10G", "hard": "12G"})
    machine.kernel.used[home, 1001] = (9 * GIB, 1)
    sent = []
    for _ in range(3):
        mails(machine, sent)
    assert [(who, subject) for who, subject, _ in sent] == [("bob", f"gpu1: your disk space at {home} is 75 % used")]
    machine.kernel.used[home, 1001] = (11 * GIB, 1)
    with pytest.raises(MailError, match="tried again in the next run"):
        mails(machine, sent, refuse=["bob"])
    mails(machine, sent)
    mails(machine, sent)
    assert len(sent) == 2
    assert "more than your soft limit of 10 GiB" in sent[1][2]


def test_the_admin_hears_once_that_limits_are_not_enforced(machine):
    home = machine.disk("home", "ext4", counted=[USER], enforced=[USER])
    ask(machine, {"path": home, "hard": "12G"})
    machine.kernel.mount(home, counted=[USER])  # mounted anew by hand
    sent = []
    mails(machine, sent)
    mails(machine, sent)
    assert [(who, subject) for who, subject, _ in sent] == [("root", f"gpu1: disk limits at {home} are not enforced")]
    bring_back(machine.world)
    mails(machine, sent)
    machine.kernel.mount(home, counted=[USER])
    mails(machine, sent)
    assert len(sent) == 2


def test_a_member_may_ask_for_their_own(machine):
    assert own(machine.world, 1001, "bob") is None
    home = machine.disk("home", "xfs", counted=[USER], enforced=[USER])
    ask(machine, {"path": home, "hard": "12G"})
    machine.kernel.used[home, 1001] = (9 * GIB, 1)
    hidden = replace(machine.world, root=machine.root)
    (machine.root / "etc/shadow").unlink()  # which members cannot read
    (reading,) = own(hidden, 1001, "bob")
    assert (reading.used, reading.hard) == (9 * GIB, 12 * GIB)


def test_a_damaged_note_is_one_line(machine):
    home = machine.disk("home", "xfs", counted=[USER], enforced=[USER])
    ask(machine, {"path": home, "hard": "12G"})
    (machine.root / "etc/gpulab/quota.json").write_text('{"members": 3}')
    with pytest.raises(GpulabError, match="run the playbook"):
        look(machine.world)
