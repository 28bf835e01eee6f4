"""Leases as the sampler sees them: those of the broker's module, and none where nobody makes any."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from gpulab.errors import GpulabError
from gpulab.services.lease_look import holds
from nvml_binding import process

MODULE = "gpulab.services.leases"


@pytest.fixture
def root(tmp_path):
    (tmp_path / "run/gpulab/leases").mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    process(tmp_path / "proc", 900, uid=1001, comm="train")
    return tmp_path


def lease(*cards, pid=900):
    return SimpleNamespace(id=7, user="bob", uid=1001, pid=pid, start_ticks=4242, cards=cards, asked=90.5, since=100.9)


def leased(index, *, shared=False, memory=5):
    return SimpleNamespace(uuid=f"GPU-{index}", index=index, memory=memory, shared=shared)


def test_a_server_that_makes_no_leases_does_not_even_load_the_module(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, MODULE, None)
    assert holds(tmp_path) == ()


def test_each_card_of_a_lease_is_held_by_the_process_it_began_with(root, monkeypatch):
    found = (lease(leased(1), leased(3, shared=True)), lease(leased(0), pid=901))
    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(live_leases=lambda _: found))
    first, second, third = holds(root, root / "proc")
    assert (first.lease, first.card, first.shared, first.promised) == (7, 1, False, 5)
    assert (first.asked, first.given) == (90, 100)
    assert (second.card, second.shared) == (3, True)
    assert (first.holder.key, first.holder.command, first.holder.lease) == ("900:4242", "train", 7)
    assert third.holder.command == "", "the process it began with is gone, others of it live"


@pytest.mark.parametrize("error", [GpulabError("damaged"), PermissionError(13, "no")])
def test_leases_that_cannot_be_read_are_judged_by_nobody(root, monkeypatch, error):
    def refuse(_):
        raise error

    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(live_leases=refuse))
    assert holds(root, root / "proc") == ()
