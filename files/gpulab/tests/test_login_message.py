"""The two lines at login: what they say, in both languages, and where they are written."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from datetime import datetime

import pytest
from gpulab.rules.display import width
from gpulab.rules.login_message import LANGUAGES, PROBLEMS, WORDS, common, own
from gpulab.rules.overview import BOOKED, LEASES, RUNNING, SHEET, SLURM, WAITING, Desk, Overview, Pool, Spot, Work
from gpulab.rules.quota_warn import FILES, SPACE, Reading
from gpulab.services.overview_files import Publisher
from gpulab.settings import Board, Settings

NOW = datetime(2026, 12, 2, 15, 30)  # noqa: DTZ001 - naive server time
SOON = NOW.replace(hour=18, minute=0)
LATER = NOW.replace(day=4, hour=9, minute=0)
SPOTS = (Spot(0, "0"), Spot(1, "1", people=("bob (python)",)), Spot(2, "2"), Spot(3, "3", reason="off the bus"))
WORK = (
    Work("bob", "train", RUNNING, (0, 1), 2, NOW, SOON),
    Work("bob", "big", BOOKED, (2,), 1, LATER, LATER),
    Work("carol", "x", WAITING, (), 2, NOW),
)
HOSTILE = "\x1b]0;owned\x07\x9b31m\u202egnp.exe\r\n<script>alert(1)</script>" + "長" * 200


def seen(*work, tier="allocator", quotas=(), **changes):
    return replace(Overview(NOW, tier, SPOTS, desk=Desk(work), quotas=quotas), **changes)


def disk(owner="bob", used=93, path="/home", what=SPACE):
    return Reading(owner, path, what, used << 30, 90 << 30, 100 << 30)


def test_the_first_line_says_which_cards_are_free():
    assert common(seen(*WORK), "en").line == "GPU: 2 of 4 cards free: 0, 2; cannot be used now: 3; 1 waiting"
    assert common(seen(*WORK), "zh").line == "GPU：4 张卡中 2 张空闲：0、2；目前不可用：3；1 个任务在排队"
    assert common(seen(*WORK, tier="table"), "en").line == "GPU: 1 of 4 cards free: 2; cannot be used now: 3; 1 waiting"
    assert common(seen(spots=SPOTS[1:2]), "en").line == "GPU: none of 1 cards free"


def test_instances_are_no_cards():
    spots = (
        Spot(0, "0"),
        Spot(1, "1 (3g.40gb)", instance=True),
        Spot(1, "1 (3g.40gb)", people=("bob (x)",), instance=True),
    )
    assert common(seen(spots=spots), "en").line == "GPU: 2 of 3 cards and instances free: 0, 1 (3g.40gb)"
    assert common(seen(spots=spots), "zh").line == "GPU：3 张卡（含 MIG 实例）中 2 张空闲：0、1 (3g.40gb)"


def test_what_is_not_new_says_of_when_it_is():
    assert common(seen(), "en").stale == "(as of 12-02 15:30) GPU: 2 of 4 cards free: 0, 2; cannot be used now: 3"
    assert common(seen(), "zh").stale.startswith("（12-02 15:30 的情况）GPU：")


def test_what_is_unknown_is_not_free():
    lost = common(seen(spots=(), reason="the driver is not loaded"), "en")
    assert lost.line == "GPU: unknown which cards are free: the driver is not loaded"
    for problem in (SHEET, LEASES, SLURM):
        for language in LANGUAGES:
            told = common(seen(desk=Desk(problem=problem, detail="no")), language)
            assert PROBLEMS[language][problem] in told.line
            assert told.nothing == WORDS[language]["unknown yours"]


def test_slurm_counts_its_own_cards():
    assert common(seen(tier="slurm", desk=Desk(pool=Pool(3, 8))), "en").line == "GPU: 3 of 8 cards free"
    assert common(seen(tier="slurm", desk=Desk(pool=Pool(0, 8))), "zh").line == "GPU：8 张卡都在使用"


def test_the_second_line_is_ones_own():
    told = own(seen(*WORK, quotas=(disk(), disk("carol"))), "bob", "en")
    assert told == "Yours: card 0-1 until 18:00 (train); card 2 from 12-04 09:00 (big); /home 93 % full"
    assert own(seen(*WORK), "carol", "en") == "Yours: 2 card(s) waiting since 15:30 (x)"
    assert own(seen(*WORK), "bob", "zh") == "您的：0-1 号卡，到 18:00（train）；2 号卡，从 12-04 09:00 起（big）"
    assert own(seen(*WORK), "alice", "en") == ""
    waits = Work("bob", "#7", WAITING)
    assert own(seen(waits), "bob", "zh") == "您的：排队中（#7）"
    assert own(seen(waits), "bob", "en") == "Yours: waiting (#7)"


@pytest.mark.parametrize(("used", "said"), [(79, ""), (80, "Yours: /home 80 % full"), (120, "Yours: /home 120 % full")])
def test_disks_are_told_of_from_80_percent_on(used, said):
    reading = Reading("bob", "/home", FILES, used, 0, 100)
    assert own(seen(quotas=(reading,)), "bob", "en") == said


@pytest.mark.parametrize("language", LANGUAGES)
def test_nothing_that_somebody_wrote_controls_the_terminal_or_makes_a_line_long(language):
    work = [replace(WORK[0], what=HOSTILE, cards=tuple(range(0, 60, 2))) for _ in range(9)]
    spots = [Spot(number, f"{number} ({HOSTILE})") for number in range(64)]
    quotas = [disk(path=f"/{HOSTILE}{number}") for number in range(9)]
    view = seen(*work, quotas=tuple(quotas), spots=tuple(spots), reason="")
    told = common(view, language)
    for line in (told.line, own(view, "bob", language), common(seen(reason=HOSTILE), language).line):
        assert line.isprintable()
        assert width(line) <= 110
    assert told.stale.isprintable()


@pytest.mark.parametrize("tier", ["table", "allocator", "slurm"])
def test_every_tier_has_words_for_those_who_have_nothing(tier):
    for language in LANGUAGES:
        assert common(seen(tier=tier), language).nothing == WORDS[language][f"nothing {tier}"]
    assert WORDS["en"].keys() == WORDS["zh"].keys()


# The files


@pytest.fixture
def publisher(tmp_path):
    return Publisher(tmp_path, lambda: 4711.9)


def tree(root):
    login = root / "run/gpulab/login"
    return sorted(str(path.relative_to(login)) for path in login.rglob("*") if path.is_file())


def test_shells_find_a_time_and_three_lines(publisher, tmp_path):
    publisher.publish(seen(*WORK), {"bob", "carol"}, Settings())
    told = common(seen(*WORK), "zh")
    path = tmp_path / "run/gpulab/login/zh"
    assert path.read_text().splitlines() == ["4711", told.line, told.stale, told.nothing]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert tree(tmp_path) == ["en", "members/bob.en", "members/bob.zh", "members/carol.en", "members/carol.zh", "zh"]


def test_only_members_have_a_file_whatever_the_sheet_says(publisher, tmp_path):
    names = ("../../evil", "bob/../x", ".hidden", "-rf", "", "root", "bob\n")
    publisher.publish(seen(*(replace(WORK[0], user=name) for name in names)), {*names[:5], names[6]}, Settings())
    assert tree(tmp_path) == ["en", "zh"]
    assert not (tmp_path / "run/evil.en").exists()


def test_what_is_over_goes_and_what_is_the_same_is_not_written_again(publisher, tmp_path):
    publisher.publish(seen(*WORK), {"bob", "carol"}, Settings())
    path = tmp_path / "run/gpulab/login/members/bob.en"
    before = path.stat().st_ino
    publisher.publish(seen(*WORK[:2]), {"bob", "carol"}, Settings())
    assert path.stat().st_ino == before
    assert tree(tmp_path) == ["en", "members/bob.en", "members/bob.zh", "zh"]
    publisher.publish(seen(*WORK), {"carol"}, Settings())
    assert "members/bob.en" not in tree(tmp_path), "who has left the lab has no file"
    publisher.publish(seen(*WORK), {"bob"}, Settings())
    assert path.exists(), "who comes back has one again"


def test_a_new_process_clears_up_after_the_old_one(publisher, tmp_path):
    publisher.publish(seen(*WORK), {"bob"}, Settings())
    Publisher(tmp_path, lambda: 4712.0).publish(seen(), {"bob"}, Settings())
    assert tree(tmp_path) == ["en", "zh"]


def test_the_board_is_there_while_it_is_wanted(publisher, tmp_path):
    path = tmp_path / "run/gpulab/board/index.html"
    publisher.publish(seen(*WORK), {"bob"}, Settings(board=Board(enabled=True)))
    assert "<!DOCTYPE html>" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    publisher.publish(seen(*WORK), {"bob"}, Settings())
    assert not path.exists()
    assert os.listdir(path.parent) == []
