"""The sheet is there, belongs to the right people, and keeps what people wrote."""

from __future__ import annotations

import grp
import os
import pwd
import stat

import pytest
from gpulab.errors import InputError, UnsafeFileError
from gpulab.services.sheet_presence import Access, ensure

HEAD = b"task_name,user,gpu_id,start_time,end_time,est_hours,status\n"
ME = Access(pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name, "0664")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "gpu_schedule.csv"


def look(path, access=ME, *, dry_run=False):
    return ensure(path, access, state_dir=path.parent / "state", dry_run=dry_run)


@pytest.mark.parametrize("content", [None, b"", b"\r\n,,,,,,\r\n"])
def test_a_missing_or_empty_sheet_gets_its_header(path, content):
    if content is not None:
        path.write_bytes(content)
    told = look(path, dry_run=True)
    assert told.changed
    assert (path.read_bytes() if path.exists() else None) == content
    assert not (path.parent / "state").exists()
    done = look(path)
    assert (done.changed, done.after) == (told.changed, told.after)
    assert path.read_bytes() == HEAD
    assert stat.S_IMODE(path.stat().st_mode) == 0o664
    assert not look(path).changed


@pytest.mark.parametrize("content", [HEAD, b"anything\n\xff\n", HEAD + b"bad row\r\n", b"bob's notes"])
def test_what_is_written_stays(path, content):
    path.write_bytes(content)
    path.chmod(0o600)
    found = look(path)
    assert found.changed
    assert "mode 0600" in found.before
    assert "mode 0664" in found.after
    assert path.read_bytes() == content
    assert not look(path).changed


def test_bad_lines_are_reported(path):
    path.write_bytes(HEAD + b"x,bob,0\n")
    assert look(path).problems == ((2, "it has 3 of the 7 columns; the header says which"),)


def test_a_group_that_is_not_there_yet_is_fine_in_a_dry_run_only(path):
    access = Access(ME.owner, "no-such-group", "0664")
    assert look(path, access, dry_run=True).changed
    with pytest.raises(InputError, match="no-such-group"):
        look(path, access)
    assert not path.exists()


def test_a_mode_that_is_not_octal_is_refused(path):
    with pytest.raises(InputError, match=r"mode is '0968'.*octal"):
        look(path, Access(ME.owner, ME.group, "0968"))


@pytest.mark.parametrize("kind", ["link", "FIFO", "folder"])
@pytest.mark.parametrize("dry_run", [True, False])
def test_what_is_no_file_is_refused_and_left_alone(path, kind, dry_run):
    target = path.parent / "target"
    target.write_bytes(b"secret")
    target.chmod(0o600)
    {"link": lambda: path.symlink_to(target), "FIFO": lambda: os.mkfifo(path), "folder": path.mkdir}[kind]()
    with pytest.raises(UnsafeFileError):
        look(path, dry_run=dry_run)
    assert target.read_bytes() == b"secret"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
