"""Whatever the rules page says is asked of the machine; what no claim covers is not allowed to stand there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import rules_page
from claims import RULES, rules, understood

if TYPE_CHECKING:
    from server import Server


@pytest.mark.promise("S12", "rules page says what is in force")
def test_every_statement_holds(server: Server) -> None:
    page = rules(server)
    assert page.statements, "there is no English in it"
    wrong = []
    for title, statement in page.statements:
        known = understood(statement)
        if known is None:
            wrong.append(f'under "{title}" it says "{statement[:60]}", which nothing can check')
            continue
        check, words = known
        try:
            check(server, words)
        except AssertionError as error:
            wrong.append(f'under "{title}" it says "{statement[:60]}", but {str(error).splitlines()[0]}')
    assert not wrong, "; ".join(wrong)


@pytest.mark.promise("S12", "rules page says what is in force")
def test_both_languages_have_the_same_numbers(server: Server) -> None:
    found = rules_page.numbers(server.told(f"cat {RULES}"))
    assert found["en"] == found["zh"], "numbers differ between the English and the Chinese half"


@pytest.mark.promise("S12", "rules page says what is in force")
def test_the_commands_of_its_examples_are_there(server: Server) -> None:
    commands = rules(server).commands - {"python", "torchrun"}  # members bring these
    missing = [name for name in sorted(commands) if server.as_member(f"command -v {name}").rc != 0]
    assert not missing, f"members have no command {', '.join(missing)}"
