from __future__ import annotations

import contextlib
import hashlib
import io
import json
import sqlite3
import tarfile
from datetime import datetime

import pytest
from gpulab.commands import backup as backup_command
from gpulab.commands import restore as restore_command
from gpulab.errors import GpulabError, InputError
from gpulab.services import backup
from members_machine import Machine

NOW = datetime.fromisoformat("2026-12-01T09:30:00")
SHEET = "id,user\n1,alice\n"
HASH = "$y$j9T$abc/def.$ghi"


@pytest.fixture
def machine(tmp_path):
    """A server where alice has a password, bob none, and carol, who had one, left."""
    (tmp_path / "old").mkdir()
    machine = Machine(tmp_path / "old")
    people = [{"name": "alice", "admin": True}, {"name": "bob"}, {"name": "carol"}]
    machine.reconcile(people)
    shadow = machine.read("etc/shadow")
    for name in ("alice", "carol"):
        shadow = shadow.replace(f"\n{name}:*:", f"\n{name}:{HASH}:")
    machine.write("etc/shadow", shadow)
    machine.reconcile([*people[:2], {"name": "carol", "state": "absent"}])
    put(machine.root, backup.SHEET, SHEET)
    put(machine.root, "var/lib/gpulab/booking/changes.jsonl", "{}\n")
    put(machine.root, "var/lib/gpulab/booking/lock", "")
    put(machine.root, "var/lib/gpulab/slurm/accounts.sql", "CREATE TABLE x;\n")
    samples = machine.root / backup.SAMPLES
    samples.parent.mkdir(parents=True)
    with sqlite3.connect(samples) as store:
        store.execute("CREATE TABLE ticks (at)")
        store.execute("INSERT INTO ticks VALUES (7)")
        store.executemany("INSERT INTO ticks VALUES (?)", [(f"{n * 7919 % 104729}",) for n in range(9000)])
    store.close()
    return machine


@pytest.fixture
def saved(machine, tmp_path):
    target = tmp_path / "lab.tar.gz"
    backup.make(target, "gpu1", NOW, backup.World(machine.root))
    return target


def put(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def fake_dump(script):
    """Stand in for mariadb-dump --result-file=FILE."""
    return ("sh", "-c", f'file="${{1#--result-file=}}"; {script}', "mariadb-dump")


def new_server(tmp_path):
    root = tmp_path / "new"
    (root / "etc").mkdir(parents=True)
    return root


def repacked(saved, target, change):
    """Write the archive anew with some members changed; the manifest stays as it was unless changed too."""
    with tarfile.open(saved) as old, tarfile.open(target, "w:gz") as new:
        contents = {member.name: old.extractfile(member).read() for member in old}
        change(contents)
        for name, data in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            new.addfile(info, io.BytesIO(data))
    return target


def test_what_people_own_comes_back_on_a_new_server(machine, saved, tmp_path):
    root = new_server(tmp_path)
    manifest, placed = backup.restore(saved, backup.World(root))
    assert (manifest.host, manifest.made) == ("gpu1", "2026-12-01T09:30:00")
    assert set(placed) == {
        backup.REGISTRY,
        backup.SHEET,
        backup.SAMPLES,
        backup.SLURM,
        "var/lib/gpulab/booking/changes.jsonl",
    }
    for name in set(placed) - {backup.SAMPLES}:
        assert (root / name).read_bytes() == (machine.root / name).read_bytes()
    store = sqlite3.connect(root / backup.SAMPLES)
    assert store.execute("SELECT at FROM ticks LIMIT 1").fetchall() == [(7,)]
    store.close()
    assert (root / backup.REGISTRY).stat().st_mode & 0o077 == 0


def test_members_have_their_old_numbers_again(machine, saved, tmp_path):
    (tmp_path / "again").mkdir()
    again = Machine(tmp_path / "again")
    backup.restore(saved, backup.World(again.root))
    again.reconcile([{"name": "bob"}, {"name": "alice", "admin": True}])  # in another order
    numbers = [line.split(":")[:3:2] for line in again.read("etc/passwd").splitlines()]
    assert ["alice", "1000"] in numbers
    assert ["bob", "1001"] in numbers


def test_only_root_can_read_it_and_it_never_replaces_a_file(machine, saved):
    assert saved.stat().st_mode & 0o777 == 0o600
    assert saved.stat().st_nlink == 1
    with pytest.raises(InputError, match="is there already"):
        backup.make(saved, "gpu1", NOW, backup.World(machine.root))


def test_a_server_with_data_of_its_own_is_left_alone(saved, tmp_path):
    root = new_server(tmp_path)
    put(root, backup.SHEET, "id,user\n2,bob\n")
    with pytest.raises(InputError, match=r"data of its own \(/home/admin/gpu_schedule.csv\)"):
        backup.restore(saved, backup.World(root))
    assert not (root / backup.REGISTRY).exists()
    assert (root / backup.SHEET).read_text() == "id,user\n2,bob\n"


def test_what_is_no_file_is_data_of_its_own_too(saved, tmp_path):
    root = new_server(tmp_path)
    (root / backup.SHEET).parent.mkdir(parents=True)
    (root / "same").write_text(SHEET)
    (root / backup.SHEET).symlink_to(root / "same")
    with pytest.raises(InputError, match="data of its own"):
        backup.restore(saved, backup.World(root))


def test_accounts_of_slurm_that_are_in_use_are_left_alone(saved, tmp_path):
    root = new_server(tmp_path)
    put(root, "var/lib/gpulab/slurm/database", "")
    with pytest.raises(InputError, match="Slurm's accounts are in use on this server"):
        backup.restore(saved, backup.World(root))


def test_an_interrupted_restore_goes_on_and_a_second_one_does_nothing(saved, tmp_path, machine):
    root = new_server(tmp_path)
    put(root, backup.SHEET, SHEET)  # came there before the power went
    _, placed = backup.restore(saved, backup.World(root))
    assert backup.SHEET not in placed
    put(root, backup.SHEET, "id,user\n1,alice\n2,bob\n")  # life went on
    assert backup.restore(saved, backup.World(root))[1] == ()
    assert "bob" in (root / backup.SHEET).read_text()


def test_the_accounting_database_is_dumped_and_a_failed_dump_is_no_backup(machine, tmp_path):
    (machine.root / "var/lib/mysql/slurm_acct_db").mkdir(parents=True)
    target = tmp_path / "live.tar.gz"
    dump = fake_dump('echo "CREATE TABLE live;" >"$file"')
    backup.make(target, "gpu1", NOW, backup.World(machine.root, dump=dump))
    with tarfile.open(target) as archive:
        assert archive.extractfile(backup.SLURM).read() == b"CREATE TABLE live;\n"
    failing = fake_dump('echo half >"$file"; echo "mariadb-dump: server has gone away" >&2; exit 2')
    with pytest.raises(GpulabError, match="server has gone away"):
        backup.make(tmp_path / "no.tar.gz", "gpu1", NOW, backup.World(machine.root, dump=failing))
    assert not (tmp_path / "no.tar.gz").exists()
    assert not list(tmp_path.glob(".backup*"))


@pytest.mark.parametrize(
    "name", ["etc/cron.d/evil", "var/lib/gpulab/booking/../../../../etc/shadow", "var/lib/gpulab/booking/.hidden"]
)
def test_a_backup_with_other_files_is_refused(saved, tmp_path, name):
    def smuggle(contents):
        manifest = json.loads(contents["manifest.json"])
        contents[name] = b"mallory"
        manifest["sha256"][name] = hashlib.sha256(b"mallory").hexdigest()
        contents["manifest.json"] = json.dumps(manifest).encode()

    root = new_server(tmp_path)
    with pytest.raises(InputError, match="which no backup of gpulab has"):
        backup.restore(repacked(saved, tmp_path / "smuggled", smuggle), backup.World(root))
    assert [path.name for path in root.rglob("*")] == ["etc"]


def test_a_damaged_file_changes_nothing(saved, tmp_path):
    def spoil(contents):
        contents[backup.SHEET] += b"2,mallory\n"

    half = tmp_path / "half"
    half.write_bytes(saved.read_bytes()[:-200])
    spoiled = repacked(saved, tmp_path / "spoiled", spoil)
    root = new_server(tmp_path)
    for path, words in (
        (spoiled, "damaged: home/admin/gpu_schedule.csv"),
        (half, "damaged"),
        (tmp_path / "none", "no backup at"),
    ):
        with pytest.raises(InputError, match=words):
            backup.restore(path, backup.World(root))
    assert [path.name for path in root.rglob("*")] == ["etc"]


def test_a_flipped_bit_is_noticed_wherever_it_is(saved, tmp_path):
    whole = saved.read_bytes()
    for place in range(
        10, len(whole), len(whole) // 120
    ):  # the first ten are gzip's own head, in which a time says nothing
        spoiled = bytearray(whole)
        spoiled[place] ^= 4
        (tmp_path / "spoiled").write_bytes(bytes(spoiled))
        (root := tmp_path / f"{place}").mkdir()
        with contextlib.suppress(InputError):
            backup.restore(tmp_path / "spoiled", backup.World(root))
        assert not list(root.iterdir()) or (root / backup.SHEET).read_text() == SHEET


def test_a_link_in_the_archive_is_refused(saved, tmp_path):
    target = tmp_path / "linked"
    with tarfile.open(saved) as old, tarfile.open(target, "w:gz") as new:
        for member in old:
            if member.name == backup.SHEET:
                member.type, member.linkname, member.size = tarfile.SYMTYPE, "/etc/shadow", 0
                new.addfile(member)
            else:
                new.addfile(member, old.extractfile(member))
    with pytest.raises(InputError, match=f"{backup.SHEET} is not a file"):
        backup.restore(target, backup.World(new_server(tmp_path)))


def test_passwords_come_back_to_the_members_who_lack_them(saved, tmp_path):
    (tmp_path / "again").mkdir()
    again = Machine(tmp_path / "again")
    given = tmp_path / "given"
    world = backup.World(again.root, chpasswd=("sh", "-c", f"cat >>{given}"))
    backup.restore(saved, world)
    assert backup.restore_passwords(saved, world) == (), "there is no account yet"
    again.reconcile([{"name": "alice", "admin": True}, {"name": "bob"}])
    assert backup.restore_passwords(saved, world) == ("alice",)
    assert given.read_text() == f"alice:{HASH}\n"
    again.write("etc/shadow", again.read("etc/shadow").replace("\nalice:*:", "\nalice:$y$own:"))
    assert backup.restore_passwords(saved, world) == (), "alice has chosen another since"


def test_a_password_goes_to_nobody_else(saved, tmp_path):
    (tmp_path / "again").mkdir()
    again = Machine(tmp_path / "again")
    world = backup.World(again.root, chpasswd=("false",))
    backup.restore(saved, world)
    again.reconcile([{"name": "alice", "admin": True}, {"name": "bob"}])
    again.write("etc/passwd", again.read("etc/passwd").replace("alice:x:1000:", "alice:x:1007:"))
    assert backup.restore_passwords(saved, world) == ()


def test_what_is_no_hash_never_reaches_chpasswd(saved, tmp_path):
    def inject(contents):
        manifest = json.loads(contents["manifest.json"])
        contents[backup.PASSWORDS] += b"root:\n"
        manifest["sha256"][backup.PASSWORDS] = hashlib.sha256(contents[backup.PASSWORDS]).hexdigest()
        contents["manifest.json"] = json.dumps(manifest).encode()

    with pytest.raises(InputError, match="a password that is none"):
        backup.restore_passwords(repacked(saved, tmp_path / "injected", inject), backup.World(new_server(tmp_path)))


def test_the_commands_say_what_they_did(machine, tmp_path, capsys):
    target = tmp_path / "lab.tar.gz"
    assert backup_command.main([str(target)], world=backup.World(machine.root), now=lambda: NOW) == 0
    assert "home/admin/gpu_schedule.csv" in capsys.readouterr().out
    world = backup.World(new_server(tmp_path))
    assert restore_command.main([str(target)], world=world) == 0
    assert "2026-12-01T09:30:00:\n  /var/lib/gpulab/members/registry.json" in capsys.readouterr().out
    assert restore_command.main([str(target)], world=world) == 0
    assert "in place already" in capsys.readouterr().out
    for name in ("passwd", "shadow"):
        put(world.root, f"etc/{name}", "")
    assert restore_command.main(["--passwords", str(target)], world=world) == 0
    assert "nobody lacks" in capsys.readouterr().out
