from __future__ import annotations

import os
import threading

import pytest
from gpulab.adapters.files import exclusive_lock, read_regular, write_atomic
from gpulab.errors import GpulabError, UnsafeFileError


def test_a_link_a_fifo_a_folder_and_a_device_are_refused_at_once(tmp_path):
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for name in ("link", "fifo", "folder"):
        with pytest.raises(UnsafeFileError, match="not an ordinary file"):
            read_regular(tmp_path / name, limit=10)


def test_a_file_over_the_limit_is_refused(tmp_path):
    path = tmp_path / "sheet"
    path.write_bytes(b"x" * 11)
    with pytest.raises(UnsafeFileError, match="larger than 10 bytes"):
        read_regular(path, limit=10)
    path.write_bytes(b"x" * 10)
    assert read_regular(path, limit=10) == b"x" * 10


def test_a_write_replaces_a_link_instead_of_following_it(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / "sheet").symlink_to(victim)
    write_atomic(tmp_path / "sheet", b"new", mode=0o640)
    assert victim.read_text() == "kept"
    assert (tmp_path / "sheet").read_bytes() == b"new"
    assert (tmp_path / "sheet").stat().st_mode & 0o777 == 0o640


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "sheet"
    path.write_text("old")
    monkeypatch.setattr(os, "rename", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, b"new", mode=0o644)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_two_holders_take_turns(tmp_path):
    held = threading.Event()
    release = threading.Event()

    def hold():
        with exclusive_lock(tmp_path / "lock", timeout=1):
            held.set()
            release.wait(5)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(5)
    with pytest.raises(GpulabError, match="in use by another command"), exclusive_lock(tmp_path / "lock", timeout=0.05):
        pass
    release.set()
    with exclusive_lock(tmp_path / "lock", timeout=2):
        pass
    holder.join()
