"""What the mails of check_gpu say, in both languages, and that what they tell people to type can be typed."""

from __future__ import annotations

import re
import shlex
import string
from dataclasses import replace

import pytest
from gpulab.commands import gpu_schedule
from gpulab.rules import checks
from gpulab.rules.cards import Cards
from gpulab.rules.check_words import CHINESE, ENGLISH
from gpulab.rules.messages import Letterhead, Mail, write
from gpulab.rules.sheet import parse
from test_checks import BOBS, CAROLS, HEADER, at, book, card, lost, proc, situation, unknown


def mails(scene, language="en") -> dict[str, Mail]:
    written = write(checks.find(scene).events, Letterhead("gpu1", "alice", language, scene.now))
    assert len({mail.recipient for mail in written}) == len(written)
    return {mail.recipient: mail for mail in written}


def fields(template: str) -> set[str | None]:
    return {field for _, field, _, _ in string.Formatter().parse(template) if field is not None}


def test_both_languages_say_the_same_things():
    assert ENGLISH.keys() == CHINESE.keys()
    for word, text in ENGLISH.items():
        assert fields(CHINESE[word]) <= fields(text) | {"user", "owner"}, word
        assert text.strip()
        assert re.search(r"[\u4e00-\u9fff]", CHINESE[word]) or word == "subject", word


BAD_SHEET = parse((HEADER + "a,carol,x,2026-12-01 09:00,2026-12-01 10:00,1,booked\n").encode())
EVERYTHING = [
    situation("07:30", [BOBS, book("09:00", "12:00", gpu=1)], [card(0), card(1)]),
    situation("09:30", [BOBS], [card(0)]),
    situation("12:30", [BOBS, CAROLS], [card(0, proc(4242))]),
    situation("12:30", [CAROLS], [card(0, proc(4242))]),
    situation("12:30", [BOBS], [card(0, proc(4242))]),
    situation("11:45", [CAROLS], [card(0, proc(4242))]),
    situation("09:30", [], [card(0, proc(1, "mallory")), lost(1), unknown(2)]),
    replace(situation("09:30"), cards=Cards(reason="driver not loaded")),
    situation("08:00", [BOBS, book("11:00", "13:00", user="carol"), book("09:00", "10:00", user="dave")], [card(0)]),
    situation("08:00", [book("09:00", "10:00", gpu=7)], [card(0)]),
    situation("08:00", cards=[card(0)], sheet=BAD_SHEET),
    replace(situation("08:00", cards=[card(0)]), sheet=None, sheet_problem="Permission denied"),
]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_kind_of_event_can_be_told(language):
    told = set()
    for scene in EVERYTHING:
        for mail in mails(scene, language).values():
            told |= {event.kind for event in mail.events}
            assert not re.search(r"[{}]|None", mail.subject + mail.body)
            assert all(ord(char) < 0x2E80 for char in mail.body) or language == "zh"
    assert told == set(checks.KINDS) - {checks.STATE}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_commands_in_the_mails_are_ones_that_gpu_schedule_takes(language):
    parser = gpu_schedule._parser()
    seen = set()
    for scene in EVERYTHING:
        for mail in mails(scene, language).values():
            for line in mail.body.splitlines():
                if line.startswith("    gpu-schedule "):
                    seen.add(parser.parse_args(shlex.split(line)[1:]).action)
    assert seen == {"add", "free", "cancel", "done", "check"}


def test_overrun_says_what_where_since_when_and_what_to_do():
    mail = mails(situation("12:30", [BOBS], [card(0, proc(4242, started="08:05"), proc(99, memory=None))]))["bob"]
    assert mail.subject == "[gpulab gpu1] card 0: your booking 'train' is over, but your processes run on"
    assert "ended 2026-12-01 12:00" in mail.body
    assert re.search(r"PID 99 +python +\? GiB +since 2026-12-01 08:00", mail.body)
    assert re.search(r"PID 4242 +python +20\.0 GiB +since 2026-12-01 08:05", mail.body)
    assert "    gpu-schedule add train --gpu 0 --start now --hours 2\n" in mail.body
    assert "    kill 99 4242\n" in mail.body
    assert "ends no process" in mail.body


def test_nobody_is_advised_to_book_time_that_somebody_else_has():
    there = [card(0, proc(1))]
    advice = {}
    for name, now in (("now", "12:30"), ("in 20 min", "11:40"), ("in 90 min", "10:30"), ("in 5 h", "07:00")):
        advice[name] = mails(situation(now, [CAROLS], there))["bob"].body
    assert "gpu-schedule free" in advice["now"]
    assert "gpu-schedule free" in advice["in 20 min"]
    assert "gpu-schedule add TASK --gpu 0 --start now --hours 1.5" in advice["in 90 min"]
    assert "gpu-schedule add TASK --gpu 0 --start now --hours 2" in advice["in 5 h"]
    assert "carol has booked the card now: 'eval', 2026-12-01 12:00 to 15:00" in advice["now"]
    assert "carol has booked the card next" in advice["in 20 min"]


def test_several_events_are_one_mail_whose_subject_names_the_worst_and_counts_the_rest():
    bookings = [BOBS, book("12:05", "15:00", gpu=1, task="next"), book("13:00", "14:00", gpu=2, task="later")]
    mail = mails(situation("12:40", bookings, [card(0, proc(1)), card(1), card(2)]))["bob"]
    assert len(mail.events) == 4
    assert mail.subject.startswith("[gpulab gpu1] card 0: your booking 'train' is over")
    assert mail.subject.endswith(" (and 2 more)")
    order = [mail.body.index(text) for text in ("'train' of card 0", "'next' of card 1 began", "'later' of card 2")]
    assert order == sorted(order)


def test_a_booking_of_several_cards_is_told_in_one_breath():
    bookings = [book("09:00", "12:00", gpu=gpu) for gpu in (0, 1, 3)]
    mail = mails(situation("09:05", bookings, [card(gpu) for gpu in range(4)]))["bob"]
    assert len(mail.events) == 3
    assert mail.subject == "[gpulab gpu1] card 0, 1, 3: your booking 'train' has begun"
    assert "CUDA_VISIBLE_DEVICES=0,1,3 " in mail.body


def test_that_a_booking_has_begun_goes_without_saying_when_it_is_not_used():
    bookings = [book("09:00", "12:00", gpu=gpu) for gpu in (0, 1)]
    mail = mails(situation("09:40", bookings, [card(0, proc(1)), card(1)]))["bob"]
    assert sorted(event.kind for event in mail.events) == ["running", "running", "unused"]
    assert mail.subject == "[gpulab gpu1] card 1: your booking 'train' is not used (and 1 more)"
    assert "'train' of card 0 is running" in mail.body
    assert "card 1 is running" not in mail.body


def test_overlap_shows_both_rows_and_each_owner_how_to_give_way():
    written = mails(situation("10:00", [BOBS, book("11:00", "13:00", user="carol", task="x y")], [card(0, proc(1))]))
    for mail in written.values():
        assert "line 2: bob, 'train', 2026-12-01 09:00 to 12:00" in mail.body
        assert "line 3: carol, 'x y', 2026-12-01 11:00 to 13:00" in mail.body
    assert "gpu-schedule done train\n" in written["bob"].body
    assert "gpu-schedule cancel 'x y'\n" in written["carol"].body
    assert "gpu-schedule done --user bob train\n" in written["alice"].body


HOSTILE = ["$(touch /tmp/x)", "a b'c\"", "-rf", "`id`;reboot", "{host}{0}%s", "=cmd()", "x" * 200, "训练\u202egnp.exe"]


@pytest.mark.parametrize("task", HOSTILE)
def test_a_hostile_task_name_stays_one_quoted_word_and_cannot_steer_a_terminal(task):
    mail = mails(situation("09:40", [replace(BOBS, task_name=task)], [card(0)]))["bob"]
    assert mail.body.replace("\n", "").isprintable()
    assert mail.subject.isprintable()
    assert len(mail.subject) < 160
    commands = [line for line in mail.body.splitlines() if line.startswith("    gpu-schedule")]
    assert commands
    for command in commands:
        arguments = gpu_schedule._parser().parse_args(shlex.split(command)[1:])
        assert arguments.action == "list" if "\u202e" in task else arguments.task_name == task


def test_a_hostile_program_name_is_shown_harmlessly():
    process = replace(proc(1), command="\x1b[2Jevil\nSubject: x")
    body = mails(situation("09:30", [], [card(0, process)]))["bob"].body
    assert "\x1b" not in body
    assert "\nSubject" not in body


def test_a_thousand_bad_rows_are_a_short_mail():
    rows = "".join(f"t{number},carol,x,2026-12-01 09:00,2026-12-01 10:00,1,booked\n" for number in range(1000))
    mail = mails(situation("08:00", cards=[card(0)], sheet=parse((HEADER + rows).encode())))["alice"]
    assert len(mail.events) == 1000
    assert "... and 980 more" in mail.body
    assert len(mail.body.splitlines()) < 40


def test_a_card_full_of_processes_and_a_sheet_full_of_mistakes_stay_readable():
    crowd = [proc(1000 + number) for number in range(50)]
    body = mails(situation("09:30", [], [card(0, *crowd)]))["bob"].body
    assert "... and 30 more" in body
    rows = [book("09:00", "10:00", user=f"guest{number}", gpu=number) for number in range(60)]
    body = mails(situation("08:00", rows, [card(number) for number in range(60)]))["alice"].body
    assert "... and 20 more" in body
    assert body.count("is not a member") == 40


def test_chinese_mail_reads_as_chinese():
    mail = mails(situation("12:30", [BOBS, CAROLS], [card(0, proc(4242))]), "zh")["bob"]
    assert mail.subject == "[gpulab gpu1] 0 号卡：预约“train”已到时，您的进程仍在运行"
    assert "您对 0 号卡的预约“train”已于 2026-12-01 12:00 结束" in mail.body
    assert "carol 已预约这张卡" in mail.body
    assert "kill 4242" in mail.body


def test_an_unknown_language_falls_back_to_english():
    assert "Hello bob," in mails(situation("09:05", [BOBS], [card(0)]), "fr")["bob"].body


def test_minutes_until_a_booking_are_said():
    assert "begins in 90 min: 2026-12-01 09:00 to 12:00" in mails(situation("07:30", [BOBS], [card(0)]))["bob"].body
    over_midnight = book("23:00", "2026-12-02 02:00")
    body = mails(replace(situation("22:00", [over_midnight], [card(0)]), now=at("22:00")))["bob"].body
    assert "2026-12-01 23:00 to 2026-12-02 02:00" in body
