"""`gpulab members`: the accounts that gpulab manages, those of people who left included."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from .. import names
from ..adapters.accounts import read_accounts, read_groups
from ..errors import NotPermittedError
from ..services.members import read_registry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..rules.accounts import Account
    from ..rules.member_registry import Entry


def main(argv: Sequence[str], root: Path = Path("/")) -> int:
    """Print the managed accounts.

    Args:
        argv: arguments after the subcommand.
        root: the folder that stands for `/`.

    Raises:
        NotPermittedError: the caller is not root.
        GpulabError: the register is damaged.
    """
    parser = argparse.ArgumentParser(prog="gpulab members", description="List the accounts that gpulab manages.")
    parser.add_argument("--json", action="store_true", help="print all that is recorded, with each account's history")
    arguments = parser.parse_args(argv)
    try:
        entries = read_registry(root)
        accounts = read_accounts(root)
    except PermissionError as error:
        raise NotPermittedError(f"only root can read {error.filename}; use sudo gpulab members") from error
    group = read_groups(root).get(names.ADMINS_GROUP)
    admins = group.members if group else frozenset()
    problems = {entry.name: _problem(entry, accounts.get(entry.name)) for entry in entries}
    if arguments.json:
        records = [
            asdict(entry) | {"admin": entry.name in admins, "problem": problems[entry.name]} for entry in entries
        ]
        print(json.dumps(records, ensure_ascii=False, indent=2))
        return 0
    if not entries:
        print("no managed accounts yet; the playbook makes those that lab_members lists")
        return 0
    rows = [("NAME", "UID", "STATE", "SINCE", "ADMIN", "HOME")]
    rows += [
        (
            entry.name,
            str(entry.uid),
            entry.state,
            entry.since[:10],
            "yes" if entry.name in admins else "",
            (entry.archive or entry.home) + (f"  ({problems[entry.name]})" if problems[entry.name] else ""),
        )
        for entry in entries
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[5]]).rstrip())
    return 0


def _problem(entry: Entry, account: Account | None) -> str:
    if account is None:
        return "the account is gone"
    return "" if account.uid == entry.uid else f"the account has uid {account.uid} now"
