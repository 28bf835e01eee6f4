"""The folder where everybody reads datasets: refused where it cannot be safe, read back after mounting, taken away."""

from __future__ import annotations

import os

import pytest
from gpulab.errors import GpulabError, InputError
from gpulab.rules.mounts import Mount, with_line
from gpulab.services.dataset_mount import World, reconcile, remove

READ_ONLY = os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV


class Machine:
    """A server whose mounts are remembered."""

    def __init__(self, folder):
        self.root = folder / "root"
        (self.root / "etc").mkdir(parents=True)
        self.fstab = self.root / "etc/fstab"
        self.fstab.write_text("/dev/vda / ext4 defaults 0 1")
        self.data = folder / "data"
        self.data.mkdir()
        self.path, self.store = str(self.data / "datasets"), str(self.data / ".datasets")
        self.mounted, self.flags, self.ran = {}, READ_ONLY, []
        self.world = World(
            root=self.root,
            owner=os.geteuid(),
            run=self.run,
            read_mounts=lambda: [Mount("/", "ext4", "/dev/vda", "8:0"), *self.mounted.values()],
            shown=lambda path, store: path in self.mounted and self.mounted[path].source == f"{store}/published",
            flags=lambda _: self.flags,
        )

    def run(self, argv):
        self.ran.append(list(argv))
        if argv[0] == "mount" and len(argv) == 2:
            self.mounted[argv[1]] = Mount(argv[1], "ext4", f"{self.store}/published", "8:0")
        elif "-o" in argv:
            self.flags = READ_ONLY
        elif argv[0] == "umount":
            if self.mounted[argv[1]].kind == "busy":
                raise GpulabError("umount ended with 32: target is busy")
            del self.mounted[argv[1]]

    def reconcile(self, *, dry_run=False):
        return reconcile(self.path, self.store, self.world, dry_run=dry_run).steps


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_it_is_made_once_and_a_check_foretells_it(machine):
    foreseen = machine.reconcile(dry_run=True)
    assert os.listdir(machine.data) == []
    assert machine.ran == []
    assert machine.reconcile() == foreseen
    assert f"mount {machine.store}/published at {machine.path}, read-only" in foreseen
    assert os.stat(machine.store).st_mode & 0o7777 == 0o700
    line = machine.fstab.read_text().splitlines()[1]
    assert line.startswith(f"{machine.store}/published {machine.path} none bind,ro,nosuid,nodev,nofail,")
    assert f"x-systemd.requires-mounts-for={machine.store}," in line
    machine.ran.clear()
    assert machine.reconcile() == []
    assert machine.ran == []


def test_what_somebody_made_writable_is_read_only_again(machine):
    machine.reconcile()
    machine.flags = 0
    assert machine.reconcile() == [f"mount {machine.path} read-only again"]
    os.chmod(machine.store, 0o755)
    assert machine.reconcile() == [f"{machine.store}: mode 0700 instead of 0755"]


def test_a_kernel_that_lets_writes_through_is_found_out(machine):
    machine.flags = os.ST_RDONLY
    with pytest.raises(GpulabError, match="is not read-only although it was mounted so"):
        machine.reconcile()


def test_what_is_there_already_is_never_hidden(machine):
    os.makedirs(f"{machine.path}/old")
    with pytest.raises(InputError, match="holds 1 things already, which would be hidden; move them elsewhere"):
        machine.reconcile()
    assert not os.path.exists(machine.store)
    assert machine.ran == []


def test_a_folder_that_is_missing_is_named(machine):
    machine.data.rmdir()
    with pytest.raises(InputError, match=f"there is no folder {machine.data}; make it, or set datasets_enabled: false"):
        machine.reconcile()


@pytest.mark.parametrize("path", ["data/x", "/data/../x", "/da ta/x", "/data//x", "/"])
def test_paths_that_are_none(machine, path):
    with pytest.raises(InputError, match="give an absolute path without blanks"):
        reconcile(path, machine.store, machine.world, dry_run=True)


def test_one_in_the_other_is_refused(machine):
    machine.data.joinpath("datasets").mkdir()
    with pytest.raises(InputError, match="put neither into the other"):
        reconcile(machine.path, f"{machine.path}/store", machine.world, dry_run=True)


def test_where_members_could_exchange_the_store_nothing_is_made(machine):
    machine.data.chmod(0o777)
    with pytest.raises(InputError, match=r"could exchange what is in it; chmod \+t"):
        machine.reconcile()
    machine.data.chmod(0o1777)
    os.symlink("/tmp", machine.store)
    with pytest.raises(InputError, match="is no folder of root's; move it away"):
        machine.reconcile()


def test_another_mount_there_is_left_alone(machine):
    os.mkdir(machine.path)
    machine.mounted[machine.path] = Mount(machine.path, "ext4", "/dev/sdb", "8:16")
    with pytest.raises(InputError, match="something else is mounted at"):
        machine.reconcile()
    assert ["mount", machine.path] not in machine.ran


def test_the_way_out_keeps_the_datasets(machine):
    machine.reconcile()
    os.mkdir(f"{machine.store}/published/coco")
    before = "/dev/vda / ext4 defaults 0 1\n"
    assert remove(machine.world, dry_run=True).steps == remove(machine.world, dry_run=False).steps
    assert machine.fstab.read_text() == before
    assert machine.mounted == {}
    assert not os.path.exists(machine.path)
    assert os.path.exists(f"{machine.store}/published/coco")
    assert remove(machine.world, dry_run=False).steps == []


def test_while_somebody_reads_it_stays(machine):
    machine.reconcile()
    machine.mounted[machine.path] = Mount(machine.path, "busy", f"{machine.store}/published", "8:0")
    with pytest.raises(GpulabError, match="who reads there now: fuser -vm"):
        remove(machine.world, dry_run=False)
    assert machine.path in machine.fstab.read_text()


def test_another_path_takes_the_place_of_the_old_one(machine):
    machine.reconcile()
    other = str(machine.data / "shared")
    steps = reconcile(other, machine.store, machine.world, dry_run=False).steps
    assert f"unmount {machine.path}" in steps
    assert list(machine.mounted) == [other]
    assert machine.fstab.read_text().count("bind,ro") == 1


def test_a_line_of_fstab_is_put_in_replaced_and_taken_out():
    text = "# /x\n/dev/a / ext4 defaults 0 1\n/old /a\\040b none bind 0 0\n"
    assert with_line(text, "/a b", "/new /a\\040b none bind 0 0") == text.replace("/old", "/new")
    assert with_line(text, "/a b", None) == "# /x\n/dev/a / ext4 defaults 0 1\n"
    assert with_line("", "/x", "line") == "line\n"
    assert with_line(text, "/nowhere", None) == text
