"""Disk limits as rules: what the inventory may say, what differs, which file systems can, and who hears when."""

from __future__ import annotations

import pytest
from gpulab.errors import InputError
from gpulab.rules.mounts import Mount, fstab_options, mount_of, parse_mountinfo, with_options
from gpulab.rules.quota import (
    Folder,
    Limits,
    Policy,
    Usage,
    changes,
    describe,
    over,
    parse_count,
    parse_grace,
    parse_policy,
    parse_size,
    size,
    to_raw,
)
from gpulab.rules.quota_places import ENABLE, JOURNAL, READY, WAITING, Place, fstab_for, judge, places, remedy
from gpulab.rules.quota_warn import FINE, HARD, NEAR, SOFT, Reading, letter, level, news, readings
from hypothesis import given
from hypothesis import strategies as st

GIB = 1 << 30
HOME = {"path": "/home", "soft": "200G", "hard": "220G", "files_hard": 2_000_000}


def policy(members=("alice", "bob"), **raw):
    return parse_policy({"folders": [HOME], **raw}, members)


def test_everybody_has_the_folders_limits_and_some_their_own():
    found = policy(overrides=[{"member": "alice", "path": "/home", "soft": "1T", "hard": "1T"}])
    assert found.limits("bob", "/home") == Limits(200 * GIB, 220 * GIB, 0, 2_000_000)
    assert found.limits("alice", "/home") == Limits(1024 * GIB, 1024 * GIB, 0, 2_000_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("200G", 200 * GIB), ("1.5 TiB", 1536 * GIB), ("10kb", 10240), ("0", 0), (0, 0), ("512M", 512 << 20)],
)
def test_sizes_are_binary(text, expected):
    assert parse_size(text, "x") == expected


@pytest.mark.parametrize("text", ["500", 500, "-1G", "G", "1 GG", "", "inf", "1e3G", "99999999P"])
def test_a_size_without_a_unit_is_refused(text):
    with pytest.raises(InputError, match="give a number with a unit, such as 200G, or 0 for no limit"):
        parse_size(text, "disk_quota_folders: /home: hard")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (
            {"folders": [{"path": "/home", "soft": "3G", "hard": "2G"}]},
            "/home: soft is 3 GiB, above hard, which is 2 GiB",
        ),
        ({"folders": [HOME, HOME]}, "/home stands there twice"),
        ({"folders": [{"path": "home"}]}, "path is 'home'; give an absolute path"),
        ({"folders": [{"path": "/home/../etc"}]}, "give an absolute path"),
        ({"folders": [{"path": "/home", "hart": "2G"}]}, "entry 1: key 'hart' is unknown"),
        ({"folders": ["/home"]}, "entry 1 is '/home'; give keys and values"),
        ({"folders": [{"hard": "2G"}]}, "entry 1 has no path"),
        ({"overrides": [{"member": "dave", "path": "/home"}]}, "there is no present member dave"),
        ({"overrides": [{"member": "bob", "path": "/data"}]}, "none of disk_quota_folders (/home)"),
        ({"overrides": [{"member": "bob", "path": "/home", "hard": "100G"}]}, "soft is 200 GiB, above hard"),
        ({"folders": [{"path": "/home", "grace": "7"}]}, "give a time with a unit"),
        ({"folders": [{"path": "/home", "files_hard": "many"}]}, "give a whole number of files"),
    ],
)
def test_nonsense_is_one_line_with_the_remedy(raw, message):
    with pytest.raises(InputError) as caught:
        policy(**raw)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_counts_and_grace_times():
    assert parse_count("1000000", "x") == 1_000_000
    assert [parse_grace(text, "x") for text in ("30m", "12h", "7d", "2w")] == [1800, 43200, 604800, 1209600]


LIMITS = st.builds(
    lambda soft, hard, files: Limits(min(soft, hard) << 10, hard << 10, min(files, 5), files),
    st.integers(0, 1 << 40), st.integers(1, 1 << 40), st.integers(1, 10**9),
)  # fmt: skip


@given(LIMITS, LIMITS)
def test_what_is_noted_down_is_read_back_the_same(ours, own):
    asked = Policy((Folder("/home", ours), Folder("/", own)), {("bob", "/home"): own}, ())
    assert parse_policy(to_raw(asked), ["bob"]) == asked


def test_only_what_differs_is_written():
    wanted = {1: Limits(hard=4096), 2: Limits(hard=4096), 3: Limits()}
    current = {1: Usage(Limits(hard=4096), 100, 1), 2: Usage(Limits(hard=8192)), 3: Usage()}
    assert changes(wanted, current) == {2: Limits(hard=4096)}


def test_limits_in_words():
    assert describe(Limits()) == "no limit"
    assert describe(Limits(0, 220 * GIB, 10, 0)) == "soft/hard -/220 GiB, files 10/-"
    assert [size(each) for each in (0, 1023, 1536 << 20, 5 << 50)] == ["0 B", "1023 B", "1.5 GiB", "5 PiB"]
    assert over(Limits(hard=GIB), Usage(used=2 * GIB)) == "2 GiB used, over the hard limit of 1 GiB"
    assert over(Limits(files_hard=5), Usage(files=6)) == "6 files, over the hard limit of 5"
    assert over(Limits(hard=GIB), Usage(used=GIB)) == ""


MOUNTINFO = r"""21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 21 254:16 / /home rw,relatime shared:20 - xfs /dev/mapper/lab-home rw,attr2
41 21 0:40 / /mnt/two\040words rw - nfs4 nas:/export rw
42 40 254:32 / /home rw - ext4 /dev/vdc rw
"""


def test_a_path_lies_on_the_longest_and_latest_mount():
    mounts = parse_mountinfo(MOUNTINFO)
    assert mount_of("/home/bob", mounts) == Mount("/home", "ext4", "/dev/vdc", "254:32")
    assert mount_of("/homework", mounts).point == "/"
    assert mount_of("/mnt/two words", mounts).kind == "nfs4"


FSTAB = (
    "# /dev/sdb /data xfs defaults 0 0\n"
    "UUID=1 /  ext4 errors=remount-ro 0 1\n"
    "/dev/sdb\t/data\txfs\tdefaults,nofail 0 0\n"
)


def test_fstab_changes_in_one_place_and_back():
    assert fstab_options(FSTAB, "/data") == "defaults,nofail"
    assert fstab_options(FSTAB, "/home") is None
    changed = with_options(FSTAB, "/data", add=["uquota"])
    assert changed == FSTAB.replace("defaults,nofail", "defaults,nofail,uquota")
    assert with_options(changed, "/data", add=["uquota"]) == changed
    assert with_options(changed, "/data", add=(), remove=["uquota"]) == FSTAB
    place = Place(Mount("/data", "xfs", "/dev/sdb", "8:16"))
    assert fstab_options(fstab_for(place, changed.replace("nofail", "noquota")), "/data") == "defaults,uquota"


EXT4, XFS = (Place(Mount("/data", kind, "/dev/sdb", "8:16")) for kind in ("ext4", "xfs"))


def test_what_has_to_be_done_first():
    assert judge(EXT4, counted=True, enforced=True) == READY
    assert judge(XFS, counted=True, enforced=False) == ENABLE
    assert judge(EXT4, counted=False, enforced=False) == JOURNAL
    assert judge(XFS, counted=False, enforced=False) == WAITING
    assert "fstab has it now): `umount /data && mount /data`" in remedy(XFS, fstab=True)
    root = Place(Mount("/", "xfs", "/dev/sda1", "8:1"))
    assert "add rootflags=uquota to GRUB_CMDLINE_LINUX" in remedy(root, fstab=True)


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("zfs", "zfs set userquota@NAME"),
        ("nfs4", "on the NFS server"),
        ("btrfs", "btrfs qgroup limit"),
        ("f2fs", "ext4 and XFS"),
    ],
)
def test_file_systems_with_ways_of_their_own_get_a_plain_answer(kind, answer):
    with pytest.raises(InputError) as caught:
        places(policy(), {"/home": Mount("/home", kind, "tank/home", "0:50")})
    assert answer in str(caught.value)
    assert f"/home lies on {kind} (tank/home)" in str(caught.value)


def test_a_folder_that_is_not_there_is_named():
    with pytest.raises(InputError, match="disk_quota_folders: there is no folder /home; make it, or take"):
        places(policy(), {"/home": None})


def test_two_folders_on_one_file_system_must_agree():
    data = {**HOME, "path": "/data"}
    found = dict.fromkeys(("/home", "/data"), EXT4.mount)
    (place,) = places(policy(folders=[HOME, data]), found)
    assert [folder.path for folder in place.folders] == ["/home", "/data"]
    for raw in (
        {"folders": [HOME, {**data, "hard": "300G"}]},
        {"folders": [HOME, data], "overrides": [{"member": "bob", "path": "/data", "hard": "300G"}]},
    ):
        with pytest.raises(InputError, match="/home and /data are one file system"):
            places(policy(**raw), found)


def reading(used, soft=0, hard=0):
    return Reading("bob", "/home", "space", used, soft, hard)


@pytest.mark.parametrize(
    ("used", "soft", "hard", "expected"),
    [
        (79, 100, 110, FINE), (80, 100, 110, NEAR), (100, 100, 110, NEAR), (101, 100, 110, SOFT), (109, 100, 110, HARD),
        (88, 0, 110, NEAR), (87, 0, 110, FINE), (101, 100, 0, SOFT), (10**9, 0, 0, FINE),
    ],
)  # fmt: skip
def test_how_bad_it_is(used, soft, hard, expected):
    assert level(reading(used, soft, hard)) == expected


def test_each_step_is_told_once_and_wavering_is_not_told_again():
    told = {}
    heard = []
    for used in (50, 81, 82, 79, 81, 101, 95, 104, 109, 109, 60, 85):
        fresh, told = news(told, [reading(used, 100, 110)])
        told |= {each.key: level(each) for each in fresh}
        heard += [(used, level(each)) for each in fresh]
    assert heard == [(81, NEAR), (101, SOFT), (104, SOFT), (109, HARD), (85, NEAR)]


def test_what_could_not_be_read_is_neither_news_nor_over():
    assert news({("bob", "/home", "space"): SOFT}, []) == ((), {("bob", "/home", "space"): SOFT})


def test_files_are_spoken_of_where_they_are_limited():
    assert len(readings("bob", "/home", Usage(Limits(hard=GIB), 5, 5))) == 1
    assert [each.what for each in readings("bob", "/home", Usage(Limits(files_hard=9), 5, 5))] == ["space", "files"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_mail_says_how_much_and_what_to_do(language):
    found = [reading(21 * GIB, 20 * GIB, 30 * GIB), Reading("bob", "/home", "files", 90, 0, 100)]
    subject, body = letter(found, host="gpu1", admin="alice", language=language, grace=7 * 86400, home="/home/bob")
    assert "gpu1" in subject
    for expected in ("21 GiB", "20 GiB", "30 GiB", "90 files", "du -xh --max-depth=2 /home/bob", "alice", "gpu-quota"):
        assert expected in body
    assert ("7 days" if language == "en" else "7 天") in body
