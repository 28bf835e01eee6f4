"""Datasets from a curator's folder to everybody's: whole or not at all, and nothing of the way is trusted."""

from __future__ import annotations

import io
import os
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from gpulab.adapters.locks import hold
from gpulab.errors import GpulabError, InputError, UnsafeFileError
from gpulab.rules.dataset_wire import END, FILE, FOLDER, LINK, Entry, Request, encode, encode_sum
from gpulab.services import dataset_receive, dataset_store
from gpulab.services.dataset_copies import search
from gpulab.services.dataset_receive import receive
from gpulab.services.dataset_send import measure, read_given_sums, send
from gpulab.services.dataset_store import INCOMING, PUBLISHED, REMOVED, STAGED, open_store

WHEN = "2030-01-01T12:00:00"


@pytest.fixture
def store(tmp_path):
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    for name, mode in dataset_store.MODES.items():
        (folder / name).mkdir(mode=mode)
    return open_store(str(folder), os.geteuid())


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "coco"
    (folder / "images" / "train").mkdir(parents=True)
    (folder / "images" / "train" / "1.jpg").write_bytes(b"one" * 1000)
    (folder / "images" / "empty").mkdir()
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o4775)
    (folder / "first").symlink_to("images/train/1.jpg")
    os.utime(folder / "run.sh", (1e9, 1e9))
    return folder


def request_for(source, name="coco"):
    return Request("add", name, "somewhere", "CC BY 4.0", "", *measure(source))


def add(store, source, name="coco", given=None):
    stream = io.BytesIO()
    request = request_for(source, name)
    send(source, stream, given or {}, lambda _: None)
    stream.seek(0)
    return receive(stream, request, store, who="carol", when=WHEN)


def raw(store, *parts, name="coco", files=5, size=100):
    """Send what gpu-dataset would not."""
    data = b"".join(part if isinstance(part, bytes) else encode(part) for part in parts)
    request = Request("add", name, "somewhere", "CC BY 4.0", "", files, size)
    return receive(io.BytesIO(data), request, store, who="carol", when=WHEN)


def left_over(store):
    return [path for state in (INCOMING, STAGED, REMOVED) for path in (store.folder / state).iterdir()]


def test_from_a_folder_to_everybody(store, source):
    record = add(store, source)
    assert (record.files, record.bytes, record.added_by) == (2, 3010, "carol")
    assert store.records(PUBLISHED) == ()
    published = store.publish("coco", who="alice", when=WHEN)
    assert store.records(PUBLISHED) == (published,)
    assert replace(published, published_by="", published="") == record
    folder = store.path(PUBLISHED, "coco")
    assert (folder / "first").read_bytes() == b"one" * 1000
    assert (folder / "images/empty").is_dir()
    assert (folder / "run.sh").stat().st_mode & 0o7777 == 0o755
    assert (folder / "images/train/1.jpg").stat().st_mode & 0o7777 == 0o644
    assert folder.stat().st_mode & 0o7777 == 0o755
    assert (folder / "run.sh").stat().st_mtime == 1e9
    subprocess.run(["sha256sum", "--check", "--strict", ".gpulab-sha256"], cwd=folder, check=True, capture_output=True)


def test_a_single_file_is_a_dataset_too(store, source):
    assert add(store, source / "run.sh").files == 1
    assert (store.path(STAGED, "coco") / "run.sh").exists()


def test_what_another_server_published_can_be_added(store, source):
    add(store, source)
    store.publish("coco", who="carol", when=WHEN)
    assert add(store, store.path(PUBLISHED, "coco"), "again").files == 2


def test_given_sums_are_compared(store, source, tmp_path):
    sums = tmp_path / "sums"
    sums.write_text(
        subprocess.run(["sha256sum", "run.sh"], cwd=source, capture_output=True, text=True, check=True).stdout
    )
    assert add(store, source, given=read_given_sums(sums)).files == 2
    with pytest.raises(InputError, match=r"run\.sh does not have the sum"):
        add(store, source, "other", given={"run.sh": "0" * 64})
    with pytest.raises(InputError, match="missing is in the list of sums and not in"):
        add(store, source, "other", given={"missing": "0" * 64})
    sums.write_text("d41d8cd98f00b204e9800998ecf8427e  md5\n")
    with pytest.raises(InputError, match="not a list of SHA-256 sums"):
        read_given_sums(sums)


def test_a_name_is_given_once(store, source):
    add(store, source)
    with pytest.raises(InputError, match="there is a staged dataset coco already; publish or remove it"):
        add(store, source)
    store.publish("coco", who="carol", when=WHEN)
    with pytest.raises(InputError, match="a new version needs a name of its own"):
        add(store, source)
    with pytest.raises(InputError, match="is published already"):
        store.publish("coco", who="carol", when=WHEN)
    with pytest.raises(InputError, match="there is no dataset other to publish"):
        store.publish("other", who="carol", when=WHEN)


def test_a_file_that_changed_on_the_disk_is_not_published(store, source):
    add(store, source)
    (store.path(STAGED, "coco") / "images/train/1.jpg").write_bytes(b"two" * 1000)
    with pytest.raises(GpulabError, match=r"images/train/1\.jpg on the disk is not what was copied"):
        store.publish("coco", who="carol", when=WHEN)
    assert store.records(PUBLISHED) == ()
    (store.path(STAGED, "coco") / "images/train/1.jpg").write_bytes(b"one" * 1000)
    (store.path(STAGED, "coco") / "stranger").touch()
    with pytest.raises(GpulabError, match="1 files are there that were not copied"):
        store.publish("coco", who="carol", when=WHEN)


def test_removing_leaves_nothing(store, source):
    add(store, source)
    store.publish("coco", who="carol", when=WHEN)
    add(store, source, "other")
    assert store.remove("coco").name == "coco"
    assert store.remove("other").name == "other"
    assert store.records(PUBLISHED) == ()
    assert left_over(store) == []
    with pytest.raises(InputError, match="there is no dataset coco"):
        store.remove("coco")


def test_nobody_removes_what_is_being_published(store, source):
    add(store, source)
    held = hold(store.path(STAGED, "coco"))
    with pytest.raises(GpulabError, match="in use by another command"):
        store.remove("coco")
    os.close(held)
    store.remove("coco")


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((), "ended early"),
        ((Entry(FILE, "a", 5), b"abc"), "ended early"),
        ((Entry(FILE, "a", 3), b"abc", encode_sum("0" * 64)), "did not arrive as it was sent"),
        ((Entry(FOLDER, "a"), Entry(FOLDER, "a")), "comes twice or before its folder"),
        ((Entry(FILE, "a/b", 0), encode_sum("")), "comes twice or before its folder"),
        ((Entry(FILE, "../a", 0),), "cannot be a path"),
        ((Entry(FILE, ".gpulab-dataset.json", 0),), "cannot be a path"),
        ((Entry(LINK, "a", target="/etc/shadow"),), "leads out"),
        ((Entry(FILE, "a", 101),), "more comes than was announced"),
        ((b"nonsense\n",), "not what gpu-dataset sends"),
    ],
)
def test_what_does_not_arrive_whole_leaves_nothing_behind(store, parts, said):
    with pytest.raises(InputError, match=said):
        raw(store, *parts)
    assert left_over(store) == []


def test_nothing_is_written_through_a_link(store, tmp_path):
    outside = tmp_path / "store" / "published" / "victim"
    outside.mkdir()
    # Links are made last, so the folder that one would lead to is not there yet.
    with pytest.raises(InputError, match="comes twice or before its folder"):
        raw(store, Entry(LINK, "a", target="b"), Entry(FILE, "a/x", 0), encode_sum(""))
    with pytest.raises(InputError, match="comes twice"):
        raw(store, Entry(FOLDER, "a"), Entry(LINK, "a", target="b"), Entry(END))
    assert list(outside.iterdir()) == []


def test_what_a_killed_process_left_is_cleared_and_what_works_is_not(store, source):
    dead, alive = store.folder / INCOMING / "dead.1", store.folder / INCOMING / "alive.1"
    dead.mkdir()
    alive.mkdir()
    held = hold(alive)
    add(store, source)
    assert not dead.exists()
    assert alive.exists()
    os.close(held)


def test_more_folders_than_any_dataset_has_are_refused(store, monkeypatch):
    monkeypatch.setattr(dataset_receive, "_MOST_OTHERS", 2)
    with pytest.raises(InputError, match="pack it into archives first"):
        raw(store, Entry(FOLDER, "a"), Entry(LINK, "b", target="a"), Entry(FOLDER, "c"), Entry(END))
    assert left_over(store) == []


def test_without_room_nothing_is_begun(store):
    with pytest.raises(InputError, match="GiB are free at"):
        raw(store, size=1 << 59)
    assert left_over(store) == []


@pytest.mark.parametrize("kind", ["pipe", "out", "unreadable"])
def test_what_cannot_be_in_a_dataset_is_named_before_anything_is_sent(source, kind, monkeypatch):
    if kind == "pipe":
        os.mkfifo(source / "pipe")
    elif kind == "out":
        (source / "out").symlink_to("../../etc")
    else:
        stat = os.stat

        def refuse(*arguments, **more):
            if more.get("dir_fd") is not None:
                raise PermissionError(13, "Permission denied", "unreadable")
            return stat(*arguments, **more)

        monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(InputError, match=kind):
        measure(source)


def test_a_file_that_grows_meanwhile_is_refused(store, source):
    class Growing(io.BytesIO):
        def write(self, data):
            with open(source / "images/train/1.jpg", "ab") as stream:
                stream.write(b"more")
            return super().write(data)

    with pytest.raises(InputError, match="changes while it is read"):
        send(source, Growing(), {}, lambda _: None)


def test_a_store_that_others_could_exchange_is_refused(store):
    store.folder.parent.chmod(0o777)
    with pytest.raises(UnsafeFileError, match="could exchange what is in it; chmod"):
        open_store(str(store.folder), os.geteuid())
    store.folder.parent.chmod(0o1777)
    open_store(str(store.folder), os.geteuid())
    if os.geteuid() == 0:
        os.chown(store.folder, 1234, -1)
        with pytest.raises(UnsafeFileError, match="belongs to uid 1234"):
            open_store(str(store.folder))


def test_a_store_that_is_not_there_is_said(tmp_path):
    with pytest.raises(GpulabError, match="is its file system mounted"):
        open_store(str(tmp_path / "none"), os.geteuid())


@contextmanager
def home(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    yield folder


def test_copies_at_home_are_found_by_content(store, source, tmp_path):
    add(store, source)
    store.publish("coco", who="carol", when=WHEN)
    content = b"one" * 1000
    with home(tmp_path, "bob") as bob, home(tmp_path, "eve") as eve:
        (bob / "deep").mkdir()
        (bob / "deep" / "mine.jpg").write_bytes(content)
        (bob / "same size").write_bytes(b"two" * 1000)
        (eve / "link").symlink_to(bob / "deep" / "mine.jpg")
        (eve / "folder").symlink_to(bob)
        os.mkfifo(eve / "pipe")
        (eve / "longer").write_bytes(content + b"one")
    found = search(store.folder / PUBLISHED, [("bob", bob), ("eve", eve), ("gone", tmp_path / "gone")], 100)
    (copy,) = found.found
    assert (copy.owner, copy.path, copy.size) == ("bob", str(bob / "deep/mine.jpg"), 3000)
    assert copy.same_as == str(store.path(PUBLISHED, "coco") / "images/train/1.jpg")
    assert found.skipped == (f"{tmp_path / 'gone'}: No such file or directory",)
    assert search(store.folder / PUBLISHED, [("bob", bob)], 3001).found == ()


def test_a_home_that_is_a_link_is_not_followed(store, source, tmp_path):
    add(store, source)
    store.publish("coco", who="carol", when=WHEN)
    (tmp_path / "bob").symlink_to(Path(store.folder / PUBLISHED / "coco"))
    assert search(store.folder / PUBLISHED, [("bob", tmp_path / "bob")], 100).found == ()
