"""The board: what it says, and that nothing that a member wrote becomes a part of the page."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from html.parser import HTMLParser

import pytest
from gpulab.rules.board_page import render
from gpulab.rules.board_words import WORDS
from gpulab.rules.machine import Disk
from gpulab.rules.overview import BOOKED, RUNNING, SHEET, WAITING, Desk, Overview, Pool, Spot, Work
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2026, 12, 2, 15, 30)  # noqa: DTZ001 - naive server time
GIB = 1 << 30
INJECTIONS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</li></ul></body></html>",
    "' style='position:fixed",
    "<meta http-equiv=refresh content=0;url=//example.org>",
    "<!--",
    "]]>&lt;b&gt;&#60;i&#62;",
    "\x1b[31m\u202e\u0000",
)
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body"),
    *("h1", "h2", "h3", "p", "b", "ul", "li", "meter"),
}
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "min", "max", "high", "value"}


class Page(HTMLParser):
    """What a browser makes of a page: its elements, their attributes and its text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.words, self.metas = [], set(), [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "meta":
            self.metas.append(dict(attrs))

    def handle_data(self, data):
        self.words.append(data)

    def handle_comment(self, data):
        raise AssertionError(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def overview(what="train", user="bob", tier="table", reason="", **changes):
    spots = (
        Spot(0, "0", "NVIDIA A100", 20 * GIB, 80 * GIB, (f"{user} ({what})",)),
        Spot(1, "1", reason=reason),
        Spot(2, "2"),
    )
    work = (
        Work(user, what, RUNNING, (0,), 1, NOW, NOW + timedelta(hours=2)),
        Work(user, what, BOOKED, (0, 1), 2, NOW + timedelta(days=1), NOW + timedelta(days=1, hours=4)),
        Work(user, what, WAITING, (), 2, NOW),
    )
    disks = (Disk("/home", total=100 * GIB, free=5 * GIB), Disk("/data", reason=reason or "does not answer"))
    return Overview(NOW, tier, spots, desk=Desk(work), disks=disks, **changes)


def test_it_says_who_is_where_what_is_booked_and_how_full_the_disks_are():
    text = Page(render(overview(), "Vision lab", "en")).text
    for said in (
        "Vision lab: who is on which card",
        "As of 2026-12-02 15:30",
        "Cards: 2 of 3 free",
        "card 0 in use bob (train)",
        "booked: bob train until 17:30",
        "20.0 GiB / 80.0 GiB NVIDIA A100",
        "Thu 2026-12-03 card 0-1 15:30 – 19:30 bob train",
        "Waiting 2 card(s) since 15:30 bob train",
        "/home 5.0 GiB free",
        "/data cannot be used now: does not answer",
    ):
        assert said in text


def test_it_is_in_the_labs_language():
    page = render(overview(), "视觉实验室", "zh")
    assert '<html lang="zh">' in page
    assert "0 号卡 使用中" in Page(page).text
    assert WORDS["en"].keys() == WORDS["zh"].keys()


@pytest.mark.parametrize("tier", ["table", "allocator", "slurm"])
def test_each_tier_has_its_words(tier):
    for language in WORDS:
        assert WORDS[language][f"nothing {tier}"] in render(Overview(NOW, tier), "Lab", language)


def check(text):
    page = Page(text)
    assert set(page.tags) <= ALLOWED
    assert page.attributes <= ATTRIBUTES
    assert page.tags.count("meta") == 4
    assert "Content-Security-Policy" in {meta.get("http-equiv") for meta in page.metas}
    assert not [char for char in page.text if not char.isprintable()]
    return page


@pytest.mark.parametrize("hostile", INJECTIONS)
def test_what_members_wrote_is_text_whatever_it_is(hostile):
    plain = check(render(overview(), "Lab", "en"))
    page = check(render(overview(what=hostile, user=hostile, reason=hostile), hostile, "en"))
    assert sorted(page.tags) == sorted(plain.tags), "not an element more"
    if hostile.isprintable():
        assert page.text.count(hostile[:20]) >= 5, "and it can be read"


@given(st.text(), st.text())
def test_no_text_at_all_makes_an_element(what, user):
    plain = Page(render(overview(), "Lab", "en"))
    assert check(render(overview(what=what, user=user), "Lab", "en")).tags == plain.tags


def test_nothing_is_loaded_or_run():
    page = render(overview(), "Lab", "en")
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert not re.search(r"<script|javascript:|\bon[a-z]+=|url\(|https?:|src=|href=", page)
    assert '<meta http-equiv="refresh" content="60">' in page


def test_it_stays_small_whatever_there_is():
    work = [Work("bob", "x" * 5000, BOOKED, (0,), 1, NOW + timedelta(days=1)) for _ in range(5000)]
    spots = [Spot(0, "0", people=tuple(["bob (" + "y" * 5000 + ")"] * 500))]
    page = render(Overview(NOW, "table", tuple(spots), desk=Desk(tuple(work))), "Lab", "en")
    assert len(page) < 50_000
    assert "and 4900 more" in page
    assert "and 488 more" in page


def test_what_is_unknown_is_not_called_free():
    unsure = Desk(problem=SHEET, detail="no")
    for changes in ({"reason": "the driver is not loaded"}, {"spots": (Spot(0, "0"),), "desk": unsure}):
        text = Page(render(Overview(NOW, "table", **changes), "Lab", "en")).text
        assert "free" not in text.split("Cards", 1)[1]
    slurm = Page(render(Overview(NOW, "slurm", (Spot(0, "0"),), desk=Desk(pool=Pool(1, 8))), "Lab", "en")).text
    assert "Cards: 1 of 8 free" in slurm
    assert "card 0 free" not in slurm
