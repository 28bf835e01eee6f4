from __future__ import annotations

import pytest
from gpulab.errors import InputError
from gpulab.rules.aliases import BEGIN, END, block_of, merge
from hypothesis import given
from hypothesis import strategies as st

BLOCK = f"{BEGIN}\nroot: alice\n{END}\n"


def test_a_block_is_added_to_a_file_that_is_not_there():
    assert merge(None, {"root": "alice"}).text == BLOCK


def test_own_lines_stay_as_they_are():
    own = "# mine\r\npostmaster:\troot\n  , bob\n\nlast: x"
    merged = merge(own, {"root": "alice"})
    assert merged.text == f"{own}\n{BLOCK}"
    assert merge(merged.text, {"root": "alice"}).text == merged.text


def test_the_block_is_replaced_where_it_stands():
    merged = merge(f"a: b\n{BLOCK}c: d\n", {"root": "bob", "carol": "carol@example.org"})
    assert merged.text == f"a: b\n{BEGIN}\nroot: bob\ncarol: carol@example.org\n{END}\nc: d\n"
    assert block_of(merged.text) == ("root: bob", "carol: carol@example.org")


def test_an_own_alias_of_the_same_name_stays_and_is_named_with_its_line():
    merged = merge(f"x: y\nRoot: operator\nbob: bob@example.org\n{BLOCK}", {"root": "alice", "bob": "bob@example.org"})
    assert merged.block == ()
    assert merged.left_out == {"root": 2}
    assert BEGIN not in merged.text


def test_comments_and_continuation_lines_are_no_aliases():
    merged = merge("# root: operator\nx: y,\n  root: z\n", {"root": "alice"})
    assert merged.block == ("root: alice",)


@pytest.mark.parametrize("text", [f"{BEGIN}\nroot: alice\n", f"{END}\n{BEGIN}\n", BLOCK + BLOCK, f"{END}\n"])
def test_a_damaged_block_is_refused(text):
    with pytest.raises(InputError, match="once each"):
        merge(text, {"root": "alice"})


@given(st.text(alphabet="ab:# \t\r\n\x85\u2028,", max_size=60))
def test_merging_twice_changes_nothing_more_and_no_own_line_is_lost(own):
    merged = merge(own, {"root": "alice", "b": "b@example.org"})
    assert merge(merged.text, {"root": "alice", "b": "b@example.org"}) == merged
    assert merged.text.startswith(own)
