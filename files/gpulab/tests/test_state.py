"""Root's small memory: what is saved is read back, what is damaged is recognised and kept."""

from __future__ import annotations

import os
import stat

import pytest
from gpulab.adapters import state


def test_what_is_saved_is_read_back_and_private(tmp_path):
    path = tmp_path / "new" / "deep" / "events.json"
    document = {"text": "训练 \udc80", "list": [1, None, "a\nb"]}
    state.save(path, document)
    assert state.load(path) == document
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == ["events.json"]


def test_no_file_is_no_document(tmp_path):
    assert state.load(tmp_path / "events.json") is None


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000, b"{}" + b" " * (17 << 20)])
def test_damage_is_recognised(tmp_path, content):
    path = tmp_path / "events.json"
    path.write_bytes(content)
    with pytest.raises(state.CorruptStateError):
        state.load(path)


def test_a_link_or_fifo_in_its_place_is_not_followed(tmp_path):
    link, fifo = tmp_path / "link.json", tmp_path / "fifo.json"
    (tmp_path / "target").write_text("{}")
    link.symlink_to(tmp_path / "target")
    os.mkfifo(fifo)
    for path in (link, fifo):
        with pytest.raises(state.CorruptStateError):
            state.load(path)
        assert os.path.lexists(state.set_aside(path))
        state.save(path, {"fresh": True})
        assert state.load(path) == {"fresh": True}
    assert (tmp_path / "target").read_text() == "{}"


def test_a_damaged_file_is_kept_for_its_reader(tmp_path):
    path = tmp_path / "events.json"
    for content in ("older damage", "newer damage"):
        path.write_text(content)
        aside = state.set_aside(path)
    assert aside == tmp_path / "events.json.corrupt"
    assert aside.read_text() == "newer damage"
    assert not path.exists()


def test_a_failed_save_leaves_the_old_document(tmp_path):
    path = tmp_path / "events.json"
    state.save(path, {"old": 1})
    with pytest.raises(TypeError):
        state.save(path, {"new": object()})
    assert state.load(path) == {"old": 1}
    assert os.listdir(tmp_path) == ["events.json"]
