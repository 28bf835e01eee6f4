"""Applying and removing the guard on a make-believe machine: files are real, systemd answers from a script."""

from __future__ import annotations

import contextlib
import os

import pytest
from gpulab.adapters.units import Units
from gpulab.errors import GpulabError, InputError
from gpulab.rules.guard import drop_in
from gpulab.rules.guard_check import HYBRID, UNIFIED, DeviceControl
from gpulab.services import guard
from gpulab.services.guard import Machine, Wish

UIDS = {"root": 0, "alice": 1000, "bob": 1001, "carol": 1002}
SLICES = drop_in("user-.slice").lstrip("/")


class Systemd:
    """Answers as systemctl and systemd-run do; remembers what it was asked."""

    def __init__(self, root, version=257):
        self.root = root
        self.version = version
        self.calls = []
        self.running = {
            "user-1001.slice": ["DevicePolicy=closed", "DeviceAllow=/dev/fuse rw"],
            "cron.service": ["DevicePolicy=auto"],
        }
        self.answers = {"user-gpulab.slice": "EPERM", "user-0.slice": "ENXIO"}
        self.die_at = None

    def __call__(self, argv):
        self.calls.append(list(argv))
        if self.die_at and self.die_at in argv:
            raise KeyboardInterrupt
        if argv[:2] == ["systemctl", "--version"]:
            return f"systemd {self.version} ({self.version}.1)\n+PAM\n"
        if argv[:2] == ["systemctl", "show"]:
            return "\n\n".join(
                f"Id={unit}\nControlGroup=/x/{unit}\n" + "\n".join(lines) for unit, lines in self.running.items()
            )
        if argv[:2] == ["systemctl", "set-property"]:
            folder = self.root / f"run/systemd/system.control/{argv[4]}.d"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "50-DevicePolicy.conf").write_text("x")
        if argv[0] == "systemd-run":
            return self.answers[argv[5].removeprefix("--slice=")] + "\n"
        return ""

    def set(self):
        return [call[4:] for call in self.calls if call[1] == "set-property"]


@pytest.fixture
def systemd(tmp_path):
    return Systemd(tmp_path)


@pytest.fixture
def machine(tmp_path, systemd):
    (tmp_path / "etc/pam.d").mkdir(parents=True)
    (tmp_path / "etc/pam.d/cron").write_text("@include common-session-noninteractive\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/user.slice/user-0.slice/session-1.scope\n")
    return Machine(
        root=tmp_path,
        units=Units(tmp_path, systemd),
        control=lambda _proc: DeviceControl(UNIFIED),
        admins=lambda _group: frozenset({"alice"}),
        uid=UIDS.get,
        stand_in=lambda: contextlib.nullcontext("/dev/stand-in"),
    )


def tree(root):
    return {
        str(path.relative_to(root)): path.read_text()
        for path in root.rglob("*")
        if path.is_file() and "proc" not in path.parts
    }


def test_a_second_run_changes_nothing_and_asks_nothing_of_the_kernel(machine, systemd):
    first = guard.apply(Wish(), machine, dry_run=False)
    assert first.files
    assert systemd.set() == [
        ["user-1001.slice", "DevicePolicy=closed", "DeviceAllow=", "DeviceAllow=/dev/fuse rw"],
        ["cron.service", "DevicePolicy=auto", "DeviceAllow=", "DeviceAllow=char-* rwm", "DeviceAllow=block-* rwm"],
    ]
    before = tree(machine.root)
    systemd.calls.clear()
    assert guard.apply(Wish(), machine, dry_run=False).files == ()
    assert systemd.set() == []
    assert ["systemctl", "daemon-reload"] not in systemd.calls
    assert tree(machine.root) == before


def test_nothing_is_left_below_run_that_would_outrank_the_files(machine):
    guard.apply(Wish(), machine, dry_run=False)
    assert list((machine.root / "run/systemd/system.control").iterdir()) == []


def test_a_dry_run_says_the_same_and_changes_nothing(machine, systemd):
    before = tree(machine.root)
    foreseen = guard.apply(Wish(), machine, dry_run=True)
    assert tree(machine.root) == before
    assert [call for call in systemd.calls if call[1] != "--version"] == []
    assert guard.apply(Wish(), machine, dry_run=False).files == foreseen.files


def test_the_way_out_leaves_no_trace(machine, systemd):
    before = tree(machine.root)
    guard.apply(Wish(services=["jupyterhub.service"]), machine, dry_run=False)
    guard.remove(machine, dry_run=False)
    assert tree(machine.root) == before
    assert not (machine.root / "etc/systemd/system/user-0.slice.d").exists()
    systemd.calls.clear()
    assert guard.remove(machine, dry_run=False).files == ()
    assert systemd.calls == []


def test_neighbours_in_the_same_folder_stay(machine):
    other = machine.root / "etc/systemd/system/user-.slice.d/50-gpulab.conf"
    other.parent.mkdir(parents=True)
    other.write_text("[Slice]\n")
    guard.apply(Wish(), machine, dry_run=False)
    guard.remove(machine, dry_run=False)
    assert other.read_text() == "[Slice]\n"


@pytest.mark.parametrize("word", ["daemon-reload", "set-property", "systemd-run"])
def test_a_run_that_is_cut_off_is_finished_by_the_next(machine, systemd, word):
    systemd.die_at = word
    with pytest.raises(KeyboardInterrupt):
        guard.apply(Wish(), machine, dry_run=False)
    systemd.die_at = None
    if word != "systemd-run":
        systemd.calls.clear()
    report = guard.apply(Wish(), machine, dry_run=False)
    assert report.files == ()
    assert [unit for unit, *_ in systemd.set()] == ["user-1001.slice", "cron.service"]
    assert list((machine.root / "run/systemd/system.control").iterdir()) == []


@pytest.mark.parametrize("word", ["daemon-reload", "set-property"])
def test_a_way_out_that_is_cut_off_is_finished_by_the_next(machine, systemd, word):
    guard.apply(Wish(services=["jupyterhub.service"]), machine, dry_run=False)
    systemd.die_at = word
    with pytest.raises(KeyboardInterrupt):
        guard.remove(machine, dry_run=False)
    systemd.die_at = None
    systemd.calls.clear()
    guard.remove(machine, dry_run=False)
    (show,) = [call for call in systemd.calls if call[1] == "show"]
    assert "jupyterhub.service" in show
    assert not (machine.root / "run/gpulab-guard.json").exists()


def test_who_is_an_admin_no_more_is_closed_again(machine):
    guard.apply(Wish(), machine, dry_run=False)
    other = Machine(**{**vars(machine), "admins": lambda _group: frozenset({"carol"})})
    changed = {change.path: change.exists for change in guard.apply(Wish(), other, dry_run=False).files}
    assert changed == {drop_in("user-1002.slice"): True, drop_in("user-1000.slice"): False}


def test_exempt_accounts_must_exist(machine):
    with pytest.raises(InputError, match="gpu_guard_exempt has zoe, but there is no such account"):
        guard.apply(Wish(exempt=["zoe"]), machine, dry_run=False)
    assert not (machine.root / SLICES).exists()


def test_the_run_does_not_lock_itself_out(machine):
    (machine.root / "proc/self/cgroup").write_text("0::/user.slice/user-1001.slice/session-7.scope\n")
    with pytest.raises(InputError, match=r"logged in as uid 1001.*name the account in gpu_guard_exempt"):
        guard.apply(Wish(), machine, dry_run=False)
    assert not (machine.root / SLICES).exists()
    assert guard.apply(Wish(exempt=["bob"]), machine, dry_run=False).files
    new = Machine(**{**vars(machine), "admins": lambda _group: frozenset()})
    assert guard.apply(Wish(), new, dry_run=True).files  # a plan for a server whose accounts are not made yet


def test_a_machine_that_cannot_refuse_devices_is_left_alone(machine):
    before = tree(machine.root)
    unable = Machine(**{**vars(machine), "control": lambda _proc: DeviceControl(HYBRID)})
    with pytest.raises(GpulabError, match=r"the cards cannot be closed here: .*hybrid.*gpu_guard_enabled: false"):
        guard.apply(Wish(), unable, dry_run=False)
    assert tree(machine.root) == before


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"user-gpulab.slice": "ENXIO"}, "the kernel does not follow them: a program in user-gpulab.slice got 'ENXIO'"),
        ({"user-gpulab.slice": "opened"}, "got 'opened' instead of EPERM"),
        ({"user-0.slice": "EPERM"}, "whether the guard holds cannot be known"),
    ],
)
def test_a_guard_that_does_not_hold_is_never_reported_as_one(machine, systemd, answers, message):
    systemd.answers |= answers
    with pytest.raises(GpulabError, match=message) as refused:
        guard.apply(Wish(), machine, dry_run=False)
    assert "\n" not in str(refused.value)


def process(machine, pid, uid, group, *cards):
    folder = machine.root / f"proc/{pid}"
    (folder / "task/7/fd").mkdir(parents=True)  # of a thread that has opened them for itself
    (folder / "stat").write_text(f"{pid} (python) S 1 " + " ".join(["0"] * 17) + " 4242 0 0\n")
    (folder / "status").write_text(f"Name:\tpython\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (folder / "cgroup").write_text(f"0::{group}\n")
    for number, card in enumerate(cards):
        os.symlink(card, folder / "task/7/fd" / str(number))


def test_who_is_on_a_card_from_before_is_named(machine):
    process(
        machine,
        10,
        61001,
        "/user.slice/user-61001.slice/session-1.scope",
        "/dev/null",
        "/dev/nvidia1",
        "/dev/nvidiactl",
    )
    lease = "/gpulab.slice/gpulab-lease.slice/gpulab-lease-61001.slice/gpulab-lease-1.scope"
    process(machine, 11, 61001, lease, "/dev/nvidia0")
    process(machine, 12, 61001, "/system.slice/slurmstepd.scope/job_1/step_0", "/dev/nvidia0")
    process(machine, 13, 1000, "/user.slice/user-1000.slice/session-2.scope", "/dev/nvidia0")
    (line,) = guard.apply(Wish(), machine, dry_run=True).warnings
    assert line.startswith("61001 (python, PID 10) has /dev/nvidia1 open from before; ")


def test_a_service_that_runs_members_programs_and_is_open_is_named(machine):
    process(machine, 10, 61001, "/system.slice/jupyterhub.service/bob")
    process(machine, 11, 61002, "/system.slice/jupyterhub.service")
    process(machine, 12, 61002, "/system.slice/system-sshd.slice/sshd@4-1.service")
    process(machine, 13, 61002, "/user.slice/user-61002.slice/user@61002.service/app.slice/x.service")
    (line,) = guard.apply(Wish(), machine, dry_run=True).warnings
    assert line.startswith("jupyterhub.service runs processes of 61001, 61002 and is open to the cards; ")
    assert guard.apply(Wish(services=["jupyterhub.service"]), machine, dry_run=True).warnings == ()
