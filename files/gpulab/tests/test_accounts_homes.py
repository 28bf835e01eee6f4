"""Homes on a real file system; only ownership is made up, so that the tests need no root."""

from __future__ import annotations

import os

import pytest
from gpulab.adapters.homes import Homes
from gpulab.errors import UnsafeFileError

BOB = 1001


@pytest.fixture
def owners():
    return {}


@pytest.fixture
def homes(tmp_path, owners):
    def chown(target, uid, gid):
        owners[(os.fstat(target) if isinstance(target, int) else os.lstat(target)).st_ino] = uid

    (tmp_path / "home/bob").mkdir(parents=True)
    (tmp_path / "home/bob/results.txt").write_text("42")
    (tmp_path / "etc/skel/.config").mkdir(parents=True)
    (tmp_path / "etc/skel/.config/rc").write_text("x")
    (tmp_path / "etc/skel/link").symlink_to("/etc/shadow")
    owners[(tmp_path / "home/bob").lstat().st_ino] = BOB
    return Homes(root=tmp_path, chown=chown, owner=lambda status: owners.get(status.st_ino, 0))


def test_looking_follows_no_link(homes):
    (homes.root / "home/link").symlink_to("bob")
    assert homes.look("/home/link").kind == "other"
    assert homes.look("/home/bob").kind == "folder"
    assert homes.look("/home/bob").uid == BOB
    assert homes.look("/home/nobody").kind == "absent"
    assert homes.look("relative").kind == "other"
    assert homes.look("/home/../home/bob").kind == "other"


def test_a_new_home_holds_the_skeleton_and_is_its_owners(homes, owners):
    homes.make("/home/carol", uid=1002, gid=1002)
    home = homes.root / "home/carol"
    assert home.stat().st_mode & 0o777 == 0o750
    assert (home / ".config/rc").read_text() == "x"
    assert (home / "link").is_symlink()
    assert {owners.get(path.lstat().st_ino) for path in [home, *home.rglob("*")]} == {1002}


def test_the_target_of_a_link_in_the_skeleton_keeps_its_owner(homes, owners):
    target = homes.root / "secret"
    target.write_text("")
    (homes.root / "etc/skel/absolute").symlink_to(target)
    homes.make("/home/carol", uid=1002, gid=1002)
    assert target.lstat().st_ino not in owners


def test_a_half_made_home_is_made_again(homes):
    half = homes.root / "home/.carol.gpulab-new"
    half.mkdir()
    (half / "half").write_text("")
    homes.make("/home/carol", uid=1002, gid=1002)
    assert not half.exists()
    assert not (homes.root / "home/carol/half").exists()


def test_a_home_that_is_there_is_not_replaced(homes):
    with pytest.raises(FileExistsError):
        homes.make("/home/bob", uid=BOB, gid=BOB)


def test_archiving_and_restoring_move_the_very_same_folder(homes):
    before = (homes.root / "home/bob").stat().st_ino
    homes.archive("/home/bob", "/home/.gpulab-archive/bob", uid=BOB)
    assert homes.look("/home/bob").kind == "absent"
    assert homes.archived(["/home/bob"]) == {"/home/.gpulab-archive/bob"}
    assert (homes.root / "home/.gpulab-archive").stat().st_mode & 0o777 == 0o700
    homes.restore("/home/.gpulab-archive/bob", "/home/bob")
    assert (homes.root / "home/bob").stat().st_ino == before


def test_an_archive_that_others_could_enter_is_closed(homes):
    (homes.root / "home/.gpulab-archive").mkdir(mode=0o755)
    homes.archive("/home/bob", "/home/.gpulab-archive/bob", uid=BOB)
    assert (homes.root / "home/.gpulab-archive").stat().st_mode & 0o777 == 0o700


def test_an_earlier_archive_is_not_replaced(homes):
    (homes.root / "home/.gpulab-archive/bob").mkdir(parents=True)
    with pytest.raises(FileExistsError):
        homes.archive("/home/bob", "/home/.gpulab-archive/bob", uid=BOB)
    assert (homes.root / "home/bob/results.txt").exists()


def test_a_link_in_place_of_the_archive_is_not_followed(homes, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (homes.root / "home/.gpulab-archive").symlink_to(elsewhere)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        homes.archive("/home/bob", "/home/.gpulab-archive/bob", uid=BOB)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("swap", ["link", "file", "folder of another"])
def test_only_the_members_own_folder_is_moved_or_closed(homes, swap):
    home = homes.root / "home/bob"
    home.rename(homes.root / "home/aside")
    if swap == "link":
        home.symlink_to(homes.root / "etc")
    elif swap == "file":
        home.write_text("")
    else:
        home.mkdir()
    with pytest.raises((OSError, UnsafeFileError)):
        homes.archive("/home/bob", "/home/.gpulab-archive/bob", uid=BOB)
    with pytest.raises((OSError, UnsafeFileError)):
        homes.close("/home/bob", uid=BOB)
    assert (homes.root / "etc").stat().st_mode & 0o777 != 0o700


@pytest.mark.parametrize("folder", ["home", "home/group"])
def test_nothing_is_moved_where_others_can_write(homes, owners, folder):
    (homes.root / "home/group/carol").mkdir(parents=True)
    owners[(homes.root / "home/group/carol").lstat().st_ino] = BOB
    (homes.root / folder).chmod(0o775)
    with pytest.raises(UnsafeFileError, match="can be changed by others than root"):
        homes.archive("/home/group/carol", "/home/group/.gpulab-archive/carol", uid=BOB)


def test_nothing_is_moved_in_a_members_folder(homes, owners):
    (homes.root / "home/bob/inner").mkdir()
    owners[(homes.root / "home/bob/inner").lstat().st_ino] = 1002
    with pytest.raises(UnsafeFileError, match="can be changed by others than root"):
        homes.archive("/home/bob/inner", "/home/bob/.gpulab-archive/inner", uid=1002)


def test_a_home_reached_through_roots_own_link_can_be_moved(homes):
    (homes.root / "data").mkdir()
    (homes.root / "home").rename(homes.root / "data/home")
    (homes.root / "home").symlink_to("data/home")
    homes.archive("/home/bob", "/home/.gpulab-archive/bob", uid=BOB)
    assert (homes.root / "data/home/.gpulab-archive/bob/results.txt").exists()


def test_closing_and_reopening_keep_the_content(homes):
    homes.close("/home/bob", uid=BOB)
    assert homes.look("/home/bob").closed
    homes.reopen("/home/bob", uid=BOB, gid=BOB)
    place = homes.look("/home/bob")
    assert (place.uid, place.mode, place.closed) == (BOB, 0o700, False)
    assert (homes.root / "home/bob/results.txt").read_text() == "42"


def test_mounts_are_read_with_their_escapes(homes):
    (homes.root / "proc/self").mkdir(parents=True)
    (homes.root / "proc/self/mountinfo").write_text(
        "36 35 98:0 /x /home/bob rw - ext4 /dev/x rw\n37 35 98:0 / /mnt/a\\040b rw shared:1 - ext4 /dev/y rw\n"
    )
    assert homes.mounts() == {"/home/bob", "/mnt/a b"}
    assert homes.look("/home/bob", homes.mounts()).mounted
