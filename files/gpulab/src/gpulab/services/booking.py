"""Booking cards: what `gpu-schedule` and leaving the lab do to the sheet, and what they read first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import names
from ..errors import InputError, NotPermittedError
from ..rules import booking as rules
from ..rules import sheet as sheets
from ..rules.schedule_request import ADD, CANCEL, Request
from ..rules.windows import OK, REFUSE, verdict
from .sheet_file import NoSheetError, read_cards, read_sheet
from .sheet_store import as_record, update

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from ..rules.booking import Actor, Booking, Limits
    from ..settings import Windows

__all__ = ["NoSheetError", "apply", "end_all_bookings", "judge", "read_cards", "read_sheet"]


def judge(request: Request, actor: Actor, windows: Windows, *, now: datetime, language: str) -> str:
    """Hold a wish against the golden hours.

    Args:
        request: what is asked, already checked for form.
        actor: who asks; an admin is only warned.
        windows: the table, and whether it is strict.
        now: server time, naive.
        language: of the sentence, `en` or `zh`.

    Returns:
        The rule that the wish breaks; empty when it breaks none or books nothing.

    Raises:
        InputError: it breaks one, and the table is strict.
    """
    if request.action != ADD:
        return ""
    found = verdict(
        windows.table,
        cards=len(request.gpu_ids),
        start=request.begin() or now,
        hours=request.hours,
        strict=windows.strict and not actor.admin,
    )
    if found.kind == REFUSE:
        raise InputError(f"{found.rule(language)}; `gpulab windows` shows them all")
    return "" if found.kind == OK else found.rule(language)


def apply(
    request: Request,
    actor: Actor,
    *,
    root: Path,
    now: Callable[[], datetime],
    limits: Limits,
    is_member: Callable[[str], bool],
) -> dict[int, Booking]:
    """Do what somebody asks, or refuse and change nothing.

    Args:
        request: what is asked, already checked for form.
        actor: who asks.
        root: the folder that stands for `/`.
        now: server time, naive.
        limits: what one booking may ask for.
        is_member: tells whether an account may have bookings.

    Returns:
        The rows added or changed, by line number.

    Raises:
        InputError: it cannot be done (TakenError: the card is booked by then).
        NotPermittedError: it is not the actor's to do.
        GpulabError: the sheet cannot be read or written.
    """
    cards = read_cards(root)
    result: dict[int, Booking] = {}

    def edit(sheet: sheets.Sheet) -> tuple[sheets.Sheet, dict[str, Any]]:
        result.clear()
        if request.action == ADD:
            changed = _add(sheet, request, actor, now(), limits, cards, is_member)
        else:
            rule = rules.cancel if request.action == CANCEL else rules.done
            changes = rule(sheet.by_line, request.task_name, actor, request.user, now=now())
            changed = sheets.change(sheet, changes)
        result.update(_touched(sheet, changed))
        return changed, _entry(request.action, sheet, result)

    update(edit, by=actor.name, root=root, now=now)
    return dict(result)


def _add(
    sheet: sheets.Sheet,
    request: Request,
    actor: Actor,
    now: datetime,
    limits: Limits,
    cards: tuple[int, ...] | None,
    is_member: Callable[[str], bool],
) -> sheets.Sheet:
    user = request.user or actor.name
    if user != actor.name and not actor.admin:
        raise NotPermittedError(f"only an admin can book for others; --user {user} is not you, {actor.name}")
    if not is_member(user):
        raise InputError(f"{user} is no member of the lab (group {names.MEMBERS_GROUP}); say for whom with --user")
    wish = rules.Wish(request.task_name, request.gpu_ids, request.begin(), request.hours)
    rows = rules.add(sheet.bookings, wish, user, now=now, limits=limits, cards=cards)
    return sheets.append(sheet, rows)


def _touched(before: sheets.Sheet, after: sheets.Sheet) -> dict[int, Booking]:
    known = {id(row.booking) for row in before.rows}
    return {line: booking for line, booking in after.by_line.items() if id(booking) not in known}


def _entry(action: str, before: sheets.Sheet, result: Mapping[int, Booking]) -> dict[str, Any]:
    old = {} if action == ADD else before.by_line
    rows = [{"before": as_record(old.get(line)), "after": as_record(after)} for line, after in result.items()]
    return {"action": action, "rows": rows}


def end_all_bookings(root: Path, user: str, by: str, now: Callable[[], datetime]) -> list[Booking]:
    """End the bookings of a member who leaves: running ones now, later ones cancelled; past ones stay as they are.

    Args:
        root: the folder that stands for `/`.
        user: who leaves.
        by: who says so, for the record.
        now: server time, naive.

    Returns:
        The rows as they are now; empty when there was nothing to end, or no sheet.

    Raises:
        GpulabError: the sheet cannot be read or written; nothing was changed.
    """
    result: dict[int, Booking] = {}

    def edit(sheet: sheets.Sheet) -> tuple[sheets.Sheet, dict[str, Any]]:
        result.clear()
        result.update(rules.leave(sheet.by_line, user, now=now()))
        return (sheets.change(sheet, result) if result else sheet), _entry("leave", sheet, result)

    try:
        update(edit, by=by, root=root, now=now)
    except NoSheetError:
        return []
    return list(result.values())
