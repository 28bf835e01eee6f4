"""Many paths in one step: what differs is changed, what does not is not touched, what is refused changes nothing."""

from __future__ import annotations

import os

import pytest
from gpulab.errors import GpulabError, InputError
from gpulab.services.lab_paths import apply, parse


@pytest.fixture
def top(tmp_path):
    return tmp_path / "top"


def entries(top):
    return [
        {"path": f"{top}/conf.d", "state": "directory", "mode": "0700"},
        {"path": f"{top}/conf.d/a.conf", "content": "a = 1"},
        {"path": f"{top}/conf.d/script", "content": "#!/bin/sh\nexit 0\n\n", "mode": "0755", "validate": "sh -n %s"},
        {"path": f"{top}/bin/script", "state": "link", "src": "../conf.d/script"},
    ]


def run(wanted, tmp_path, absent=(), **options):
    return apply(parse(wanted, absent), **{"dry_run": False, "scratch": str(tmp_path)} | options)


def test_what_is_wanted_is_there_and_a_second_run_touches_nothing(top, tmp_path):
    wanted = entries(top)
    assert run(wanted, tmp_path).changed == [each["path"] for each in wanted]
    assert (top / "conf.d/a.conf").read_text() == "a = 1\n"
    assert (top / "bin/script").read_text() == "#!/bin/sh\nexit 0\n"
    assert [oct((top / name).stat().st_mode & 0o7777) for name in ("conf.d", "conf.d/a.conf", "conf.d/script")] == [
        "0o700", "0o644", "0o755",
    ]  # fmt: skip
    inode = (top / "conf.d/a.conf").stat().st_ino
    again = run(wanted, tmp_path)
    assert (again.changed, again.differences) == ([], [])
    assert (top / "conf.d/a.conf").stat().st_ino == inode
    assert sorted(path.name for path in (top / "conf.d").iterdir()) == ["a.conf", "script"]


def test_a_new_file_is_proved_beside_the_others_under_its_name(top, tmp_path):
    beside = "sh -c 'test \"$(cat $(dirname $0)/other)\" = x && test $(basename $0) = unit' %s"
    unit = {"path": f"{top}/d/unit", "content": "y", "validate": beside}
    folder = {"path": f"{top}/d", "state": "directory"}
    with pytest.raises(InputError, match="refuses the new file"):
        run([folder, unit], tmp_path)
    run([folder, unit, {"path": f"{top}/d/other", "content": "x"}], tmp_path)
    assert sorted(path.name for path in (top / "d").iterdir()) == ["other", "unit"]


def test_new_parents_do_not_depend_on_the_umask(top, tmp_path):
    before = os.umask(0o077)
    try:
        run([{"path": f"{top}/a/b", "state": "directory"}, entries(top)[-1]], tmp_path)
        run([{"path": f"{top}/private/c", "state": "directory", "mode": "0700"}], tmp_path)
    finally:
        os.umask(before)
    seen = {name: oct((top / name).stat().st_mode & 0o7777) for name in ("", "a", "a/b", "bin", "private", "private/c")}
    assert seen == dict.fromkeys(("", "a", "a/b", "bin"), "0o755") | dict.fromkeys(("private", "private/c"), "0o700")


@pytest.mark.parametrize(
    ("spoil", "path"),
    [
        (lambda top: (top / "conf.d/a.conf").write_text("a = 2\n"), "conf.d/a.conf"),
        (lambda top: (top / "conf.d/a.conf").write_text("a = 1"), "conf.d/a.conf"),
        (lambda top: (top / "conf.d/a.conf").write_bytes(b"a = 1\r\n"), "conf.d/a.conf"),
        (lambda top: (top / "conf.d/a.conf").write_bytes(b"\xff\n"), "conf.d/a.conf"),
        (lambda top: (top / "conf.d/a.conf").chmod(0o664), "conf.d/a.conf"),
        (lambda top: os.chown(top / "conf.d/a.conf", 1234, 0), "conf.d/a.conf"),
        (lambda top: os.chown(top / "conf.d", 0, 1234), "conf.d"),
        (lambda top: (top / "conf.d").chmod(0o755), "conf.d"),
        (lambda top: ((top / "bin/script").unlink(), (top / "bin/script").symlink_to("/bin/sh")), "bin/script"),
        (lambda top: (top / "conf.d/a.conf").unlink(), "conf.d/a.conf"),
    ],
)
def test_one_that_differs_is_mended_alone(top, tmp_path, spoil, path):
    run(entries(top), tmp_path)
    spoil(top)
    assert run(entries(top), tmp_path, dry_run=True).changed == [f"{top}/{path}"]
    told = run(entries(top), tmp_path)
    assert told.changed == [f"{top}/{path}"]
    ((name, before, after),) = told.differences
    assert name == f"{top}/{path}"
    assert before != after
    assert run(entries(top), tmp_path).changed == []


def test_a_link_in_a_files_place_is_replaced_and_not_followed(top, tmp_path):
    run(entries(top), tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("keep\n")
    (top / "conf.d/a.conf").unlink()
    (top / "conf.d/a.conf").symlink_to(secret)
    told = run(entries(top), tmp_path)
    assert "keep" not in told.differences[0][1]
    assert secret.read_text() == "keep\n"
    assert not (top / "conf.d/a.conf").is_symlink()


def test_a_dry_run_changes_nothing_and_needs_no_parents_accounts_or_proofs(top, tmp_path):
    wanted = entries(top)
    wanted[1] |= {"owner": "nobody-yet"}
    wanted[2] |= {"validate": "/no/such/program %s"}
    told = run(wanted, tmp_path, dry_run=True)
    assert len(told.changed) == 4
    assert "a = 1" in told.differences[1][2]
    assert not top.exists()


def test_what_is_not_proved_is_not_written_nor_anything_else(top, tmp_path):
    wanted = entries(top)
    wanted[2]["content"] = "if\n"
    with pytest.raises(InputError, match=r"conf.d/script: `sh -n %s` refuses the new file: .*end of file"):
        run(wanted, tmp_path)
    assert not top.exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stream", [1, 2])
def test_the_whole_reason_is_told_about_the_file_that_was_meant(top, tmp_path, stream):
    validate = f"sh -c '{{ echo %s:3: to: ; echo \"06:30; too early: no\"; exit 1; }} >&{stream}'"
    with pytest.raises(InputError) as refused:
        run([{"path": f"{top}/day", "content": "x", "validate": validate}], tmp_path)
    assert str(refused.value).endswith(f"refuses the new file: {top}/day:3: to:; 06:30; too early: no")


def test_what_shall_not_be_there_goes_and_only_that(top, tmp_path):
    run(entries(top), tmp_path)
    (top / "away").symlink_to(tmp_path)
    absent = [f"{top}/conf.d/", f"{top}/away", f"{top}/never", f"{top}/bin/script/below"]
    assert run([], tmp_path, absent, dry_run=True).changed == [f"{top}/conf.d", f"{top}/away"]
    assert run([], tmp_path, absent).changed == [f"{top}/conf.d", f"{top}/away"]
    assert sorted(path.name for path in top.iterdir()) == ["bin"]
    assert run([], tmp_path, absent).changed == []


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"path": "etc/x", "content": "x"}, "give an absolute path"),
        ({"path": "//", "content": "x"}, "give an absolute path below /"),
        ({"path": "/etc/x"}, "a file needs content"),
        ({"path": "/etc/x", "content": "x", "src": "y"}, "nothing else takes them"),
        ({"path": "/etc/x", "state": "link"}, "a link needs src"),
        ({"path": "/etc/x", "state": "directory", "content": "x"}, "nothing else takes them"),
        ({"path": "/etc/x", "content": "x", "mode": "644x"}, "mode is '644x'; give octal digits"),
        ({"path": "/etc/x", "content": "x", "mode": "0888"}, "give octal digits"),
        ({"path": "/etc/x", "content": "x", "validate": "true"}, "has no %s"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(entry, why):
    with pytest.raises(InputError, match=why):
        parse([entry])


def test_what_is_in_the_way_is_named_and_kept(top, tmp_path):
    (top / "conf.d/a.conf").mkdir(parents=True)
    with pytest.raises(InputError, match=r"a.conf is a folder; move it away"):
        run(entries(top), tmp_path)
    (top / "conf.d/a.conf").rmdir()
    (top / "bin").mkdir()
    (top / "bin/script").write_text("mine\n")
    with pytest.raises(InputError, match="script is there and no link"):
        run(entries(top), tmp_path)
    assert not (top / "conf.d/a.conf").exists()
    with pytest.raises(GpulabError, match="nobody-here"):
        run([{"path": f"{top}/bin/script", "content": "x", "group": "nobody-here"}], tmp_path)
    assert (top / "bin/script").read_text() == "mine\n"


def test_a_folder_may_be_behind_a_link(top, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    top.mkdir()
    (top / "conf.d").symlink_to(tmp_path / "elsewhere")
    run(entries(top)[:2], tmp_path)
    assert (tmp_path / "elsewhere/a.conf").read_text() == "a = 1\n"
