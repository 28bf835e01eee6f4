"""The hardware ledger: what counts as a change, what is remembered, and that files are whole."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import count

import pytest
from gpulab.errors import GpulabError, NotPermittedError
from gpulab.rules.cards import Card, Cards, MigDevice, NvLink, Process
from gpulab.rules.ledger import SHOWN, Change
from gpulab.rules.ledger_page import page, sentence
from gpulab.rules.ledger_words import CHINESE, ENGLISH
from gpulab.rules.machine import ABSENT, Disk, Machine
from gpulab.rules.quota_warn import FILES, SPACE, Reading
from gpulab.services import ledger

GIB = 1 << 30
MACHINE = Machine(
    hostname="gpu01",
    cpu="AMD EPYC 7763 64-Core Processor",
    sockets=2,
    cores=128,
    threads=256,
    memory=1000 * GIB,
    disks=(Disk("/home", total=4000 * GIB, free=1000 * GIB), Disk("/data", reason=ABSENT)),
)


def card(index, uuid=None, **more):
    return Card(
        **{
            "index": index,
            "uuid": uuid or f"GPU-{index}",
            "name": "NVIDIA A100-SXM4-80GB",
            "minor": index,
            "bus_id": f"00000000:0{index}:00.0",
            "memory_total": 80 * GIB,
            "memory_used": 3 * GIB,
            "utilization": 10,
            "nvlinks": (NvLink(0, active=True, remote_bus_id=f"0000:0{1 - index % 2}:00.0"),),
            "mig_capable": True,
            "mig_enabled": False,
            "mig_pending": False,
            "processes": (),
            **more,
        }
    )


def cards(*items, **more):
    return Cards(cards=items, driver_version="550.163.01", nvml_version="12.550.163.01", cuda_version="12.4", **more)


TWO = cards(card(0), card(1))
WITH_MIG = {
    "mig_enabled": True,
    "mig_pending": True,
    "mig_devices": (
        MigDevice(0, "MIG-a", "3g.40gb", 1, 0, 40 * GIB, 0),
        MigDevice(1, "MIG-b", "3g.40gb", 2, 0, 40 * GIB, 0),
        MigDevice(2, "MIG-c", "1g.10gb", 9, 0, 10 * GIB, 0),
    ),
}


@pytest.fixture
def keep(tmp_path):
    minutes = count()
    start = datetime(2026, 12, 1, 9, 0, tzinfo=timezone(timedelta(hours=8)))

    def run(found, machine=MACHINE, *, language="en", **more):
        return ledger.refresh(
            tmp_path,
            read_cards=lambda: found,
            read_machine=lambda: machine,
            now=lambda: start + timedelta(minutes=next(minutes)),
            language=language,
            **more,
        )

    run.info = tmp_path / "home/admin/GPU_INFO.md"
    run.inventory = tmp_path / "home/admin/GPU_SCHEDULE/gpu_inventory.csv"
    run.state = tmp_path / "var/lib/gpulab/ledger/ledger.json"
    run.root = tmp_path
    return run


def said(outcome):
    return [sentence(change).split(": ", 1)[1] for change in outcome.changes]


def test_the_page_says_what_the_mission_promises(keep):
    assert said(keep(cards(card(0), card(1, **WITH_MIG)))) == ["the ledger begins: cards: 2"]
    text = keep.info.read_text()
    assert text.startswith("# Hardware of gpu01\n\nMeasured 2026-12-01 09:00:00+08:00. ")
    assert "| 0 | NVIDIA A100-SXM4-80GB | 81920 MiB | 3072 MiB | 1 of 1 up: 1 to card 1 | off | GPU-0 |" in text
    assert "| on: 1g.10gb, 2 x 3g.40gb | GPU-1 |" in text
    assert "| 1 | 2 | 1g.10gb | 10240 MiB | 0 MiB |  | MIG-c |" in text
    assert "- Processor: 2 x AMD EPYC 7763 64-Core Processor, 128 cores, 256 threads" in text
    assert "- Memory: 1000 GiB" in text
    assert "| /home | 3.9 TiB | 1000 GiB (25 %) |" in text
    assert f"| /data | {ABSENT} |" in text
    assert "- 2026-12-01 09:00:00+08:00: the ledger begins: cards: 2" in text


def test_the_page_says_whose_instance_is_which(keep):
    path = keep.root / "run/gpulab/bindings"
    path.parent.mkdir(parents=True)
    path.write_text("bob MIG-a\ncarol MIG-a\ndan MIG-gone\n")
    found = cards(card(0, **WITH_MIG))
    keep(found)
    assert "| 0 | 0 | 3g.40gb | 40960 MiB | 0 MiB | bob, carol | MIG-a |" in keep.info.read_text()
    assert "dan" not in keep.info.read_text()
    assert not keep(found).changed
    path.write_text("bob MIG-b\n")
    assert keep(found, language="zh").changed
    assert "| 0 | 1 | 3g.40gb | 40960 MiB | 0 MiB | bob | MIG-b |" in keep.info.read_text()
    assert "| 分配给 |" in keep.info.read_text()


def test_the_inventory_has_the_columns_and_numbers_of_nvidia_smi(keep):
    keep(cards(card(0, memory_used=1 << 19), Card(1, lost=True, reason="gone"), card(2, memory_used=None)))
    assert keep.inventory.read_text() == (
        "index, name, memory.total [MiB], memory.used [MiB]\n"
        "0, NVIDIA A100-SXM4-80GB, 81920 MiB, 0 MiB\n"
        "1, [N/A], [N/A], [N/A]\n"
        "2, NVIDIA A100-SXM4-80GB, 81920 MiB, [N/A]\n"
    )
    assert {len(row) for row in csv.reader(keep.inventory.read_text().splitlines())} == {4}


def test_measurements_are_refreshed_without_being_a_change(keep):
    keep(TWO)
    busy = Process(pid=7, start_ticks=1, uid=1, user="bob", command="x", memory=GIB)
    later = cards(card(0, memory_used=70 * GIB, utilization=99, processes=(busy,), reason="processes: odd"), card(1))
    fuller = replace(MACHINE, disks=(Disk("/home", total=4001 * GIB, free=GIB), Disk("/data", total=9, free=9)))
    outcome = keep(later, fuller)
    assert (outcome.changed, outcome.changes) == (False, ())
    assert "| 71680 MiB |" in keep.info.read_text()
    assert "Measured 2026-12-01 09:01:00+08:00" in keep.info.read_text()
    assert "0, NVIDIA A100-SXM4-80GB, 81920 MiB, 71680 MiB" in keep.inventory.read_text()


@pytest.mark.parametrize(
    ("found", "changes"),
    [
        (cards(card(0)), ["card 1 removed: NVIDIA A100-SXM4-80GB (GPU-1)"]),
        (cards(card(0), card(1), card(2)), ["card 2 added: NVIDIA A100-SXM4-80GB (GPU-2)"]),
        (
            cards(card(0), card(1, "GPU-new", name="NVIDIA L40S")),
            ["card 1 replaced: NVIDIA A100-SXM4-80GB (GPU-1) -> NVIDIA L40S (GPU-new)"],
        ),
        (
            cards(card(0, "GPU-1"), card(1, "GPU-0")),
            [
                "card 1 has now the number 0: NVIDIA A100-SXM4-80GB (GPU-1)",
                "card 0 has now the number 1: NVIDIA A100-SXM4-80GB (GPU-0)",
            ],
        ),
        (
            cards(card(0), Card(1, lost=True, reason="off the bus")),
            ["card 1 fell off the bus: NVIDIA A100-SXM4-80GB (GPU-1)"],
        ),
        (cards(card(0), card(1, memory_total=40 * GIB)), ["card 1, memory: 81920 MiB -> 40960 MiB"]),
        (cards(card(0), card(1, nvlinks=())), ["card 1, NVLinks up: 1 -> 0"]),
        (cards(card(0), card(1, mig_pending=True)), ["card 1, MIG mode: off -> off, on after the next reset"]),
        (
            cards(card(0), card(1, **WITH_MIG)),
            ["card 1, MIG mode: off -> on", "card 1, MIG instances: none -> 1g.10gb, 2 x 3g.40gb"],
        ),
        (replace(TWO, driver_version="570.0"), ["driver: 550.163.01 -> 570.0"]),
        (Cards(reason="there is no driver"), ["the cards cannot be read: there is no driver"]),
    ],
)
def test_each_change_of_the_hardware_is_told_once_and_kept(keep, found, changes):
    keep(TWO)
    outcome = keep(found)
    assert outcome.changed
    assert said(outcome) == changes
    again = keep(found)
    assert (again.changed, again.changes) == (False, ())
    for change in changes:
        assert keep.info.read_text().count(change) == 1


def test_more_ram_and_another_processor_are_changes_but_a_kernel_taking_a_little_is_not(keep):
    keep(TWO)
    assert keep(TWO, replace(MACHINE, memory=999 * GIB)).changes == ()
    assert said(keep(TWO, replace(MACHINE, memory=2000 * GIB))) == ["memory: 999 GiB -> 2000 GiB"]
    assert said(keep(TWO, replace(MACHINE, memory=2000 * GIB, cpu="Other"))) == [
        "processor: AMD EPYC 7763 64-Core Processor -> Other"
    ]


def test_cards_that_could_not_be_read_for_a_while_are_the_same_ones_afterwards(keep):
    keep(TWO)
    keep(Cards(reason="the driver is away"))
    assert "No card can be shown: the driver is away." in keep.info.read_text()
    assert keep.inventory.read_text().count("\n") == 1
    assert said(keep(TWO)) == ["the cards can be read again"]


def test_a_lost_card_that_comes_back_is_the_same_one(keep):
    keep(TWO)
    keep(cards(card(0), Card(1, lost=True, reason="the card has fallen off the bus")))
    assert "- Card 1: the card has fallen off the bus." in keep.info.read_text()
    assert said(keep(TWO)) == ["card 1 is back: NVIDIA A100-SXM4-80GB (GPU-1)"]


def test_a_card_that_was_lost_from_the_start_is_known_once_it_answers(keep):
    keep(cards(card(0), Card(1, lost=True, reason="x")))
    assert said(keep(TWO)) == ["card 1 is back: NVIDIA A100-SXM4-80GB (GPU-1)"]


def test_a_field_that_was_not_read_this_time_is_no_change_of_hardware(keep):
    keep(cards(card(0, **WITH_MIG), card(1)))
    unread = {"memory_total": None, "mig_capable": None, "mig_enabled": None, "mig_pending": None, "mig_devices": ()}
    assert keep(cards(card(0, **unread), replace(card(1), uuid="", name="", reason="UUID: odd"))).changes == ()
    assert keep(cards(card(0, **WITH_MIG), card(1))).changes == ()


def test_check_writes_nothing_and_foretells_the_run(keep):
    foretold = keep(TWO, dry_run=True)
    assert foretold.changed
    assert list(keep.root.iterdir()) == []
    keep(TWO)
    before = {path: path.read_bytes() for path in keep.root.rglob("*") if path.is_file()}
    assert not keep(TWO, dry_run=True).changed
    assert keep(cards(card(0)), dry_run=True).changed
    assert {path: path.read_bytes() for path in keep.root.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("spoil", ["edit", "delete", "mode", "link"])
@pytest.mark.parametrize("name", ["info", "inventory"])
def test_a_page_that_is_not_as_it_was_left_is_put_right_and_told(keep, name, spoil, tmp_path):
    keep(TWO)
    path = getattr(keep, name)
    good, elsewhere = path.read_text(), tmp_path / "elsewhere"
    elsewhere.write_text("untouched")
    if spoil == "edit":
        path.write_text("mine")
    elif spoil == "mode":
        path.chmod(0o666)
    else:
        path.unlink()
        if spoil == "link":
            path.symlink_to(elsewhere)
    assert keep(TWO, dry_run=True).changed
    outcome = keep(TWO)
    assert outcome.changed
    assert outcome.changes == ()
    assert not path.is_symlink()
    assert path.read_text().split()[-1] == good.split()[-1]
    assert path.stat().st_mode & 0o777 == 0o644
    assert elsewhere.read_text() == "untouched"
    assert not keep(TWO).changed


def test_another_language_is_a_change_of_the_page(keep):
    keep(TWO)
    assert keep(TWO, language="zh").changed
    assert not keep(TWO, language="zh").changed
    text = keep.info.read_text()
    assert "# gpu01 硬件清单" in text
    assert "| /data | 没有这个目录 |" in text
    assert "开始记录（显卡：2）" in text


def test_both_languages_say_the_same_things():
    assert CHINESE.keys() == ENGLISH.keys()
    for key, text in ENGLISH.items():
        fields = [part.partition("}")[0] for part in text.split("{")[1:]]
        for field in fields:
            assert f"{{{field}}}" in CHINESE[key], key


def test_the_page_shows_the_newest_changes_first_and_the_file_keeps_more(keep, monkeypatch):
    monkeypatch.setattr(ledger, "KEPT", SHOWN + 3)
    for number in range(SHOWN + 9):
        keep(replace(TWO, driver_version=str(number)))
    lines = [line for line in keep.info.read_text().splitlines() if "driver: " in line]
    assert len(lines) == SHOWN
    assert lines[0].endswith(f"driver: {SHOWN + 7} -> {SHOWN + 8}")
    assert len(json.loads(keep.state.read_text())["history"]) == SHOWN + 3


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"facts": {"cards": 1}, "history": []}', "null and void"])
def test_a_corrupt_memory_is_put_aside_and_said(keep, content):
    keep(TWO)
    keep.state.write_text(content)
    assert keep(TWO, dry_run=True).changed
    assert keep.state.read_text() == content
    assert said(keep(TWO)) == [
        "the old history could not be read; it begins anew",
        "the ledger begins: cards: 2",
    ]
    assert keep.state.with_name("ledger.json.corrupt").read_text() == content
    assert not keep(TWO).changed


def test_memory_of_another_version_is_read_as_far_as_it_is_known(keep):
    keep(TWO)
    document = json.loads(keep.state.read_text())
    document["facts"]["invented"] = 1
    document["facts"]["cards"][0]["invented"] = 1
    document["history"].append({"when": "2026-12-02", "kind": "invented", "before": "a", "after": "b", "card": None})
    keep.state.write_text(json.dumps(document))
    assert keep(TWO).changes == ()
    assert "- 2026-12-02: invented: a -> b" in keep.info.read_text()


def test_a_run_killed_before_it_remembered_tells_the_change_once(keep, monkeypatch):
    keep(TWO)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(ledger.state, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            keep(cards(card(0)))
    assert said(keep(cards(card(0)))) == ["card 1 removed: NVIDIA A100-SXM4-80GB (GPU-1)"]
    assert keep.info.read_text().count("card 1 removed") == 1


def test_names_from_the_driver_cannot_break_the_table():
    odd = cards(card(0, name="A | B\n## C\x1b"))
    text = page(odd, MACHINE, [Change("now", "added", 0, "", "x\n# y")], "now", "en")
    assert "| 0 | A / B?## C? |" in text
    assert "added: x?# y" in text


def test_pages_are_readable_for_members_and_the_memory_is_not(keep):
    keep(TWO)
    assert keep.info.stat().st_mode & 0o777 == 0o644
    assert keep.inventory.parent.stat().st_mode & 0o777 == 0o755
    assert keep.state.parent.stat().st_mode & 0o777 == 0o700


def test_members_are_told_to_ask_root(keep, monkeypatch):
    def refuse(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(ledger, "write_atomic", refuse)
    with pytest.raises(NotPermittedError, match=r"GPU_INFO.md may not be opened; run `gpulab ledger` as root"):
        keep(TWO)


def test_a_folder_that_is_a_file_is_named(keep):
    (keep.root / "home").write_text("")
    with pytest.raises(GpulabError, match=r"the ledger cannot be written: .*/home/admin.*: Not a directory"):
        keep(TWO)


def test_the_page_shows_how_much_of_their_disk_limits_people_use():
    quotas = (
        Reading("bob", "/home", SPACE, 150 * GIB, 200 * GIB, 0),
        Reading("bob", "/home", FILES, 5, 0, 10),
        Reading("/data/vision", "/data/vision", SPACE, 0, 0, 0),
    )
    text = page(TWO, replace(MACHINE, quotas=quotas), (), "now", "en")
    assert "| bob | /home | 150 GiB | 200 GiB | none | 75 % |" in text
    assert "| bob | /home | 5 files | none | 10 files | 50 % |" in text
    assert "| /data/vision | /data/vision | 0 B | none | none |  |" in text
    assert "## 磁盘限额" in page(TWO, replace(MACHINE, quotas=quotas), (), "now", "zh")
    assert "Disk limits" not in page(TWO, MACHINE, (), "now", "en")
    assert text.count("Not in force now") == 0
    off = page(TWO, replace(MACHINE, quotas=quotas, quota_off=("/data", "/fast")), (), "now", "en")
    assert "| none | none |  |\n\nNot in force now: /data, /fast.\n" in off
    assert "## Disk limits\n\nNot in" in page(TWO, replace(MACHINE, quota_off=("/data",)), (), "now", "en")
    assert "They cannot be read: odd." in page(TWO, replace(MACHINE, quota_reason="odd"), (), "now", "en")


def test_new_use_of_disk_limits_is_no_change(keep):
    def machine(used):
        return replace(MACHINE, quotas=(Reading("bob", "/home", SPACE, used, 0, 9 * GIB),))

    keep(TWO, MACHINE)
    assert keep(TWO, machine(GIB)).changed
    assert not keep(TWO, machine(2 * GIB)).changed
    assert "| bob | /home | 2.0 GiB | none | 9.0 GiB | 22 % |" in keep.info.read_text()
