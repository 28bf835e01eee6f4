"""Names, paths, links and sums of datasets, and what travels between the two halves of gpu-dataset."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict

import pytest
from gpulab.errors import InputError
from gpulab.rules import dataset_wire as wire
from gpulab.rules import datasets as rules


@pytest.mark.parametrize("name", ["coco-2017", "a", "imagenet_1k.v2"])
def test_good_names(name):
    assert rules.check_name(name) == name


@pytest.mark.parametrize("name", ["", "COCO", ".hidden", "../etc", "a/b", "a b", "a\n", "x" * 64, "-x", None])
def test_bad_names(name):
    with pytest.raises(InputError, match="cannot be called"):
        rules.check_name(name)


@pytest.mark.parametrize("path", ["a", "a/b/c", "..a", "a\nb", "a/.gpulab-sha256", "\udcff"])
def test_paths_within(path):
    assert rules.check_path(path) == path


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", ".", "a/./b", "a\0b", ".gpulab-sha256", "x" * 4001, 5],
)
def test_paths_that_lead_elsewhere(path):
    with pytest.raises(InputError, match="cannot be a path"):
        rules.check_path(path)


@pytest.mark.parametrize(("path", "target"), [("a", "b"), ("a/b/c", "../../x"), ("a/b", "."), ("a/b", "../a/c")])
def test_links_within(path, target):
    assert rules.check_link(path, target) == target


@pytest.mark.parametrize(
    ("path", "target"), [("a", "/etc/passwd"), ("a", ".."), ("a/b", "../../x"), ("a", ""), ("a", 1)]
)
def test_links_that_lead_out(path, target):
    with pytest.raises(InputError, match="leads out of the dataset"):
        rules.check_link(path, target)


def test_sums_are_those_of_sha256sum(tmp_path):
    for name in ("plain", "with blank", "new\nline", "back\\slash", "ret\rurn"):
        (tmp_path / name).write_bytes(name.encode())
    lines = subprocess.run(["sha256sum", "--", *sorted(p.name for p in tmp_path.iterdir())], cwd=tmp_path,
                           capture_output=True, check=True).stdout.decode()  # fmt: skip
    for line in lines.removesuffix("\n").split("\n"):
        path, digest = rules.read_sum_line(line)
        assert (tmp_path / path).read_bytes().decode() == path
        assert rules.sum_line(path, digest) == line


@pytest.mark.parametrize("line", ["", "abc  file", "0" * 63 + "  x", "0" * 64 + " x", "MD5 (x) = " + "0" * 32])
def test_what_is_no_sum(line):
    assert rules.read_sum_line(line) is None


def test_sums_in_capitals_and_of_binary_mode_count():
    assert rules.read_sum_line("A" * 64 + " *./x") == ("x", "a" * 64)


def test_a_record_comes_back_and_others_do_not():
    record = rules.Record("coco", "somewhere", "CC BY", files=3, bytes=4, added_by="carol")
    assert rules.read_record(rules.write_record(record)) == record
    for strange in (b"", b"[]", b"{}", b'{"name": "x"}', rules.write_record(record).replace(b"3", b'"3"')):
        assert rules.read_record(strange) is None


def test_messages_come_back():
    request = wire.Request("add", "coco", "somewhere", "CC BY 4.0", "说明", 3, 4)
    assert wire.decode_request(wire.encode(request)) == request
    entry = wire.Entry(wire.LINK, "a/\udcff", target="b")
    assert wire.decode_entry(wire.encode(entry)) == entry


@pytest.mark.parametrize(
    "change",
    [
        {"verb": "destroy"},
        {"name": "../x"},
        {"licence": ""},
        {"source": "two\nlines"},
        {"files": -1},
        {"bytes": 1 << 61},
        {"files": True},
        {"more": 1},
    ],
)
def test_strange_requests_are_refused(change):
    document = {**asdict(wire.Request("add", "coco", "somewhere", "CC BY 4.0")), **change}
    with pytest.raises(InputError):
        wire.decode_request(json.dumps(document).encode() + b"\n")


@pytest.mark.parametrize("line", [b"", b"{}", b"{}\n", b"[" * 60000 + b"\n", b"\xff\n", b"x" * wire.LINE_LIMIT])
def test_strange_lines_are_refused(line):
    with pytest.raises(InputError):
        wire.decode_entry(line)
