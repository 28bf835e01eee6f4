"""The board: one web page that says who is on which card, what is booked or waits, and how full the disks are.

Made for phones: one column, no table, and long words break. Whatever members wrote goes through `safe`.
"""

from __future__ import annotations

from datetime import datetime, time
from typing import TYPE_CHECKING

from .board_words import WORDS
from .calendar_view import ranges
from .html_page import head, safe
from .ledger_page import size
from .login_message import PROBLEMS
from .overview import BOOKED, BROKEN, FREE, RUNNING, USED, WAITING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .machine import Disk
    from .overview import Overview, Spot, Work

REFRESH_SECONDS = 60

_MOST_PEOPLE = 12
_MOST_WORK = 100
_NAME, _TEXT, _REASON = 32, 60, 200
"""The most characters of an account name, of what somebody wrote, of a reason."""

_FULL = 0.9

_STYLE = """
body { font: 16px/1.45 system-ui, "Noto Sans CJK SC", sans-serif; margin: 0 auto; padding: .6em .8em 2em;
  max-width: 60em; color: #222; background: #fff; overflow-wrap: anywhere; }
h1 { font-size: 1.25em; margin: .2em 0; } h2 { font-size: 1.05em; margin: 1.4em 0 .4em; }
h3 { font-size: 1em; margin: 1em 0 .2em; color: #555; } p { margin: .2em 0; }
ul { list-style: none; margin: 0; padding: 0; }
li { padding: .35em .6em; border-left: .3em solid #bbb; margin: .3em 0; background: #f6f6f6; }
li.free { border-color: #2a9d4a; } li.used, li.taken { border-color: #d8832b; } li.broken { border-color: #c33; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 17em), 1fr)); gap: .5em; }
.cards li { margin: 0; } .small { font-size: .85em; color: #555; } meter { width: 100%; height: .8em; }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818; } li { background: #262626; }
  .small, h3 { color: #aaa; } }
"""


def render(seen: Overview, lab: str, language: str) -> str:
    """Write the page.

    Args:
        seen: the lab at one moment.
        lab: its name.
        language: `en` or `zh`; any other is written in English.
    """
    language = language if language in WORDS else "en"
    return "\n".join(_parts(seen, lab, language, WORDS[language])) + "\n"


def _parts(seen: Overview, lab: str, language: str, words: dict[str, str]) -> Iterator[str]:
    title = words["title"].format(lab=lab)
    yield from head(title, language, _STYLE, refresh=REFRESH_SECONDS)
    yield f"<h1>{safe(title, 100)}</h1>"
    yield f'<p class="small">{words["at"].format(time=f"{seen.at:%Y-%m-%d %H:%M}")}</p>'
    yield f"<h2>{words['cards']}{_count(seen, words)}</h2>"
    if seen.reason:
        yield f"<p>{words['unknown'].format(reason=safe(seen.reason, _REASON))}</p>"
    yield '<ul class="cards">' + "".join(_spot(spot, seen, words) for spot in seen.spots) + "</ul>"
    yield from _work(seen, language, words)
    yield f"<h2>{words['disks']}</h2><ul>" + "".join(_disk(disk, words) for disk in seen.disks) + "</ul>"
    yield "</body></html>"


def _count(seen: Overview, words: dict[str, str]) -> str:
    if seen.desk.pool is not None:
        return words["count"].format(free=seen.desk.pool.free, total=seen.desk.pool.total)
    if not seen.sure:
        return ""
    return words["count"].format(free=len(seen.those(FREE)), total=len(seen.spots))


def _spot(spot: Spot, seen: Overview, words: dict[str, str]) -> str:
    state = seen.state_of(spot)
    name = words["card"].format(name=safe(spot.name, _NAME))
    lines = [f"<p><b>{name}</b> {words[state]} {safe(spot.reason, _REASON)}</p>"]
    lines += [f"<p>{safe(person, _TEXT)}</p>" for person in spot.people[:_MOST_PEOPLE]]
    if len(spot.people) > _MOST_PEOPLE:
        lines.append(f"<p>{words['more'].format(count=len(spot.people) - _MOST_PEOPLE)}</p>")
    if seen.tier == "table":
        now = [work for work in seen.desk.work if work.state == RUNNING and spot.index in work.cards]
        lines += [f"<p>{words['booked by'].format(who=_who(work), end=_when(work.end, seen.at))}</p>" for work in now]
    if spot.used is not None and spot.total:
        lines.append(_meter(spot.used, spot.total))
        lines.append(f'<p class="small">{_share(spot.used, spot.total)} {safe(spot.model, _TEXT)}</p>')
    return f'<li class="{state}">{"".join(lines)}</li>'


def _work(seen: Overview, language: str, words: dict[str, str]) -> Iterator[str]:
    yield f"<h2>{words[f'work {seen.tier}']}</h2>"
    if seen.desk.problem:
        yield f"<p>{PROBLEMS[language][seen.desk.problem]}: {safe(seen.desk.detail, _REASON)}</p>"
    elif not seen.desk.work:
        yield f"<p>{words[f'nothing {seen.tier}']}</p>"
    by_state = {state: [work for work in seen.desk.work if work.state == state] for state in (RUNNING, WAITING)}
    yield _rows(words[RUNNING], by_state[RUNNING], seen.at, words)
    days: dict[datetime, list[Work]] = {}
    for work in seen.desk.work:
        if work.state == BOOKED and work.start:
            days.setdefault(datetime.combine(work.start, time()), []).append(work)
    for day, group in sorted(days.items()):
        yield _rows(f"{words['days'].split()[day.weekday()]} {day:%Y-%m-%d}", group, day, words)
    yield _rows(words[WAITING], by_state[WAITING], seen.at, words)


def _rows(title: str, group: Sequence[Work], day: datetime, words: dict[str, str]) -> str:
    """Write some work below a title; times of that day come without it. Nothing when there is none."""
    if not group:
        return ""
    rows = [f"<li>{' '.join(_row(work, day, words))}</li>" for work in group[:_MOST_WORK]]
    if len(group) > _MOST_WORK:
        rows.append(f"<li>{words['more'].format(count=len(group) - _MOST_WORK)}</li>")
    return f"<h3>{title}</h3><ul>{''.join(rows)}</ul>"


def _row(work: Work, now: datetime, words: dict[str, str]) -> Iterable[str]:
    if work.cards:
        yield words["card"].format(name=ranges(work.cards))
    elif work.count:
        yield words["cards of"].format(count=work.count)
    if work.start and work.end:
        yield f"{_when(work.start, now)} – {_when(work.end, now)}"
    elif work.start:
        yield words["since" if work.state != BOOKED else "from"].format(start=_when(work.start, now))
    yield _who(work)


def _who(work: Work) -> str:
    return f"<b>{safe(work.user, _NAME)}</b> {safe(work.what, _TEXT)}"


def _when(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return "?"
    return f"{moment:%H:%M}" if moment.date() == now.date() else f"{moment:%m-%d %H:%M}"


def _disk(disk: Disk, words: dict[str, str]) -> str:
    name = f"<b>{safe(disk.path, _TEXT)}</b>"
    if disk.reason or disk.free is None or not disk.total:
        return f'<li class="{BROKEN}">{name} {words[BROKEN]} {safe(disk.reason, _REASON)}</li>'
    used = disk.total - disk.free
    left = words["disk free"].format(free=size(disk.free))
    lines = f'<p>{name} {left}</p>{_meter(used, disk.total)}<p class="small">{_share(used, disk.total)}</p>'
    return f'<li class="{USED if used > _FULL * disk.total else FREE}">{lines}</li>'


def _meter(used: int, total: int) -> str:
    part = min(1.0, used / total)
    return f'<meter min="0" max="1" high="{_FULL}" value="{part:.3f}">{part:.0%}</meter>'


def _share(used: int, total: int) -> str:
    return f"{size(used)} / {size(total)}"
