"""The driver on a small machine: real files under a folder, and dpkg's answers."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest
import yaml
from gpulab.adapters import dpkg, driver
from gpulab.adapters.programs import ProgramError, output_of
from gpulab.adapters.state import CorruptStateError
from gpulab.errors import GpulabError
from gpulab.rules.driver import Wish
from gpulab.rules.driver_words import Holder, SecureBoot
from gpulab.services import driver as service

MODULE = Path(__file__).parents[3] / "plugins/modules/nvidia_driver_plan.py"


class Machine:
    """Files under a folder, and a package database."""

    def __init__(self, root):
        self.root = root
        self.world = service.World(root=root, proc_root=root / "proc", run=self.run)
        self.packages = {"libcuda1:amd64": "install", "nvidia-smi": "install", "bash": "install"}
        self.library = "12.550.163.01"
        self.start = "0"
        self.locked = 0
        self.file("proc/self/x")

    def file(self, name, content=b""):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def load(self, version):
        self.file("proc/driver/nvidia/version", f"NVRM version: NVIDIA Kernel Module  {version}  x\n".encode())

    def run(self, arguments, _patience, given):
        if arguments[0] == "dpkg-query":
            return (
                "".join(
                    f"{want}\tinstalled\t{name.partition(':')[0]}\t{name}\t550.163.01-2\t"
                    f"{'bash' if name == 'bash' else 'nvidia-graphics-drivers'}\n"
                    for name, want in self.packages.items()
                )
                + "deinstall\tconfig-files\tnvidia-old\tnvidia-old\t1-1\tnvidia-graphics-drivers\n"
            )
        if arguments[0] == "dpkg":
            if self.locked:
                self.locked -= 1
                raise OSError("dpkg status database is locked by another process")
            self.packages.update(line.split() for line in given.splitlines())
            return ""
        if "nvmlInit_v2" in arguments[-1]:
            return f"{self.start}\n"
        if not self.library:
            raise OSError("libnvidia-ml.so.1: cannot open shared object file")
        return f"{self.library}\n"

    def held(self):
        return sorted(name for name, want in self.packages.items() if want == "hold")


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_machine_with_nothing(machine):
    machine.library, machine.packages = "", {}
    found = service.read(machine.world)
    assert (found.cards, found.loaded, found.library, found.driver, found.holders) == ((), "", "", (), ())
    assert (found.nouveau, found.container, found.secure_boot, found.managed) == (False, False, None, False)
    assert found.kernel == os.uname().release


def test_cards_are_found_without_a_driver(machine):
    for address, vendor, kind in (
        ("0000:07:00.0", "0x10de", "0x030200"),
        ("0000:08:00.0", "0x10de", "0x030000"),
        ("0000:08:00.1", "0x10de", "0x040300"),  # the sound of the card before it
        ("0000:00:02.0", "0x8086", "0x030000"),
    ):
        machine.file(f"sys/bus/pci/devices/{address}/vendor", f"{vendor}\n".encode())
        machine.file(f"sys/bus/pci/devices/{address}/class", f"{kind}\n".encode())
    assert driver.cards(machine.root) == ("0000:07:00.0", "0000:08:00.0")


def test_a_mismatch_is_what_the_library_says_of_it(machine):
    machine.load("535.261.03")
    assert not service.read(machine.world).mismatch  # a container that sees its host's kernel module
    machine.start = "18"
    found = service.read(machine.world)
    assert (found.mismatch, found.loaded, found.library) == (True, "535.261.03", "550.163.01")
    machine.load("550.163.01")
    assert not service.read(machine.world).mismatch


def test_who_holds_a_card_open(machine):
    processes = {7: ("nvidia-persiste", 100), 8: ("nvidia-persiste", 1001), 9: ("python", 1001), 10: ("bash", 1001)}
    for pid, (command, uid) in processes.items():
        machine.file(f"proc/{pid}/stat", f"{pid} ({command}) S {'0 ' * 18}42 0".encode())
        machine.file(f"proc/{pid}/status", f"Name:\t{command}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n".encode())
        folder = machine.root / f"proc/{pid}/fd"
        folder.mkdir()
        (folder / "3").symlink_to("/dev/null" if pid == 10 else "/dev/nvidia-uvm")
    (daemon, python) = driver.holders(machine.root / "proc")
    assert (daemon.pid, daemon.command) == (8, "nvidia-persiste")  # a member's program that calls itself so
    assert isinstance(python, Holder)
    assert (python.pid, python.command) == (9, "python")


@pytest.mark.parametrize(("state", "trusted", "enrolled"), [(1, b"...KEY...", True), (1, b"other", False)])
def test_secure_boot(machine, state, trusted, enrolled):
    machine.file(f"{driver._EFI}/{driver._SECURE_BOOT}", bytes([6, 0, 0, 0, state]))
    assert driver.secure_boot(machine.root) == SecureBoot(enabled=True)
    machine.file(f"{driver._EFI}/{driver._TRUSTED_KEYS}", b"\7\0\0\0" + trusted)
    machine.file("var/lib/dkms/mok.pub", b"KEY")
    expected = SecureBoot(enabled=True, key="/var/lib/dkms/mok.pub", enrolled=enrolled)
    assert driver.secure_boot(machine.root) == expected


def test_an_initial_ram_disk_from_before_is_stale(machine):
    configuration = machine.root / "etc/modprobe.d/gpulab-nouveau.conf"
    assert driver.stale_initramfs(configuration, machine.root) == ()
    old, new = machine.file("boot/initrd.img-6.1"), machine.file("boot/initrd.img-6.12")
    os.utime(old, (1000, 1000))
    os.utime(machine.file("etc/modprobe.d/gpulab-nouveau.conf"), (2000, 2000))
    os.utime(new, (3000, 3000))
    assert driver.stale_initramfs(configuration, machine.root) == ()  # nothing could make it again
    machine.file("usr/sbin/update-initramfs")
    assert driver.stale_initramfs(configuration, machine.root) == (str(old),)


def hold(machine, **options):
    return service.hold(machine.world, **{"wanted": True, "installed": True, "dry_run": False, **options})


def test_holds_come_once_and_go_again(machine):
    assert hold(machine, dry_run=True).after == ("libcuda1:amd64", "nvidia-smi")
    assert machine.held() == []
    done = hold(machine)
    assert (done.changed, done.before, done.after) == (True, (), ("libcuda1:amd64", "nvidia-smi"))
    assert machine.held() == ["libcuda1:amd64", "nvidia-smi"]
    assert not hold(machine).changed
    assert service.read(machine.world).installed_by_us
    assert hold(machine, wanted=False).changed
    assert machine.held() == []
    assert not hold(machine, wanted=False).changed


def test_the_admins_own_hold_outlives_ours(machine):
    machine.packages["nvidia-smi"] = "hold"
    hold(machine)
    assert service.release(machine.world, dry_run=True).changed
    assert machine.held() == ["libcuda1:amd64", "nvidia-smi"]
    done = service.release(machine.world, dry_run=False)
    assert (done.changed, done.after) == (True, ("nvidia-smi",))
    assert machine.held() == ["nvidia-smi"]
    assert not service.read(machine.world).managed
    assert not service.release(machine.world, dry_run=False).changed


def test_a_hold_is_remembered_before_it_is_made(machine):
    machine.locked = 1000
    with pytest.raises(
        GpulabError, match=r"dpkg could not put packages on hold: .*locked.*; try again when apt is idle"
    ):
        dpkg.select(["nvidia-smi"], "hold", machine.run, sleep=lambda _: None)
    world = service.World(machine.root, machine.root / "proc", _failing(machine.run))
    with pytest.raises(GpulabError):
        service.hold(world, wanted=True, installed=True, dry_run=False)
    assert service.read_record(machine.world) == service.Record(("libcuda1:amd64", "nvidia-smi"), installed=True)
    machine.locked = 0
    assert hold(machine).changed
    assert machine.held() == ["libcuda1:amd64", "nvidia-smi"]


def _failing(run):
    def fail(arguments, patience, given):
        if arguments[0] == "dpkg":
            raise OSError("no space left on device")
        return run(arguments, patience, given)

    return fail


def test_a_busy_package_database_is_waited_for(machine):
    machine.locked = 3
    waited = []
    dpkg.select(["nvidia-smi"], "hold", machine.run, sleep=waited.append)
    assert machine.held() == ["nvidia-smi"]
    assert len(waited) == 3


def test_where_nothing_is_held_nothing_is_noted(machine):
    machine.packages = {}
    assert not hold(machine, installed=False).changed
    assert not hold(machine, installed=False, wanted=False).changed
    assert service.read_record(machine.world) is None


def test_a_record_that_is_none_is_named(machine):
    machine.file("var/lib/gpulab/driver/record.json", b"[]")
    with pytest.raises(CorruptStateError, match=r"record\.json is not a record of gpulab"):
        service.read(machine.world)


def test_a_look_answers_as_the_module_documents(machine):
    answer = service.to_dict(service.look(Wish(packages=("nvidia-smi",)), machine.world))
    assert answer["action"] == "keep"
    assert answer["specifications"] == ["nvidia-smi=550.163.01-*"]
    assert answer["library"] == "550.163.01"
    (page,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(MODULE.read_text()).body
        if isinstance(node, ast.Assign) and node.targets[0].id == "RETURN"
    )
    assert set(yaml.safe_load(page)) == set(answer)
    with pytest.raises(GpulabError, match="nvidia_driver_version"):
        service.look(Wish(version="newest"), machine.world)


def test_programs_get_what_they_read_and_are_not_waited_for_for_ever():
    assert output_of(["cat"], 10, "text") == "text"
    with pytest.raises(TimeoutError):
        output_of(["sleep", "60"], 0.05)
    with pytest.raises(OSError, match="the program no-such-program is not installed"):
        output_of(["no-such-program"], 1)
    with pytest.raises(ProgramError, match=r"ls: cannot access .*: No such file or directory$") as failed:
        output_of(["ls", "/no/such/file"], 10)
    assert failed.value.reason == "No such file or directory"
    with pytest.raises(ProgramError, match="false failed"):
        output_of(["false"], 10)
