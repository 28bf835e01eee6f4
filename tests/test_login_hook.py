"""The hook that login shells read: two lines or none, from ready files, without starting anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

TEMPLATE = Path(__file__).resolve().parent.parent / "roles/handbook/templates/gpulab-login.sh.j2"
MEMBERS = 1000


@pytest.fixture(params=["bash", "dash"])
def shell(request: pytest.FixtureRequest) -> list[str]:
    return {"bash": ["bash", "--norc", "--noprofile"], "dash": ["dash"]}[request.param]


@pytest.fixture
def hook(tmp_path: Path) -> Path:
    """Write the hook as the role does, reading a folder of the test's."""
    text = TEMPLATE.read_text().replace("{{ ansible_managed | comment }}", "# test")
    path = tmp_path / "hook.sh"
    path.write_text(text.replace("/run/gpulab/login", f"{tmp_path}/login"))
    (tmp_path / "login/members").mkdir(parents=True)
    return path


def write(hook: Path, *, age: int = 0, begins: str = "") -> None:
    since = int(float(Path("/proc/uptime").read_text().split()[0])) - age
    for language in ("en", "zh"):
        lines = [begins or str(since), f"{language} fresh", f"{language} stale", f"{language} nothing"]
        (hook.parent / "login" / language).write_text("\n".join(lines) + "\n")


def login(shell: list[str], hook: Path, *options: str, **environ: str) -> str:
    command = [*shell, *(options or ("-i",)), "-c", f". {hook}"]
    # An empty PATH: a hook that starts a program does not get far.
    clean = {"PATH": "/nonexistent", "LOGNAME": "bob", "LANG": "en_US.UTF-8", **environ}
    program = next(path for path in ("/bin", "/usr/bin") if os.path.exists(f"{path}/{command[0]}"))
    command[0] = f"{program}/{command[0]}"
    done = subprocess.run(command, env=clean, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    assert "hook" not in done.stderr
    assert "not found" not in done.stderr
    return done.stdout


def test_who_has_nothing_sees_what_everybody_sees(shell: list[str], hook: Path) -> None:
    write(hook)
    assert login(shell, hook) == "en fresh\nen nothing\n"


def test_who_has_something_sees_it_in_their_language(shell: list[str], hook: Path) -> None:
    write(hook)
    for language in ("en", "zh"):
        (hook.parent / f"login/members/bob.{language}").write_text(rf"{language} own \n %s $(id) `id`" + "\n")
    own = r" own \n %s $(id) `id`"
    assert login(shell, hook) == f"en fresh\nen{own}\n"
    assert login(shell, hook, LANG="zh_CN.UTF-8") == f"zh fresh\nzh{own}\n"
    assert login(shell, hook, LANG="zh_CN.utf8", LC_ALL="C.UTF-8") == f"en fresh\nen{own}\n"
    assert login(shell, hook, LC_MESSAGES="zh_TW.UTF-8") == f"zh fresh\nzh{own}\n"
    assert login(shell, hook, LANG="zh_CN.GB18030").startswith("en fresh"), "its terminal would not draw UTF-8"
    assert login(shell, hook, LOGNAME="carol") == "en fresh\nen nothing\n"


@pytest.mark.parametrize(
    ("age", "first"), [(0, "en fresh"), (115, "en fresh"), (125, "en stale"), (590, "en stale"), (610, ""), (-60, "")]
)
def test_what_is_old_says_so_and_what_is_older_is_not_shown(shell: list[str], hook: Path, age: int, first: str) -> None:
    write(hook, age=age)
    assert login(shell, hook) == (f"{first}\nen nothing\n" if first else "")


@pytest.mark.parametrize("begins", ["", "-5", "5; id", "x", "99999999999999999999999", "a[$(id)]"])
def test_no_files_or_half_ones_are_silence(shell: list[str], hook: Path, begins: str) -> None:
    if begins:
        write(hook, begins=begins)
    assert login(shell, hook) == ""
    (hook.parent / "login/en").write_text("12\nhalf")
    assert login(shell, hook) == ""


def test_scripts_and_shells_within_shells_hear_nothing(shell: list[str], hook: Path) -> None:
    write(hook)
    assert login(shell, hook, "-e") == ""
    assert login(shell, hook, SHLVL="1" if shell[0] == "bash" else "2") == "", "bash counts itself"


def test_it_leaves_nothing_behind(shell: list[str], hook: Path) -> None:
    write(hook)
    (hook.parent / "after.sh").write_text(f". {hook}\nset\n")
    assert "gpulab_" not in login(shell, hook.parent / "after.sh").replace(str(hook), "")


def test_it_takes_no_time_however_many_members_there_are(hook: Path) -> None:
    write(hook)
    for number in range(MEMBERS):
        for language in ("en", "zh"):
            (hook.parent / f"login/members/member{number:04}.{language}").write_text("Yours: " + "x" * 100 + "\n")
    times = hook.parent / "times.sh"
    times.write_text(
        "for turn in {1..50}; do begin=${EPOCHREALTIME/./}\n"
        f". {hook} >/dev/null\n"
        "echo $((${EPOCHREALTIME/./} - begin)); done\n"
    )
    took = login(["bash", "--norc", "--noprofile"], times, LOGNAME="member0999").split()
    microseconds = sorted(map(int, took))
    assert len(microseconds) == 50
    assert microseconds[25] < 20_000, "promised: 100 ms on a login; a busy test machine shall not be the judge of one"
