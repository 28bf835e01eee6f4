"""The broker: one at a time, it looks at the cards, gives leases in order, and moves the callers into their scopes.

Everything here happens in one thread under the lock of /run/gpulab, so a card cannot be given twice. What it knows is
on file before anybody is told, in this order: ticket, lease, move, answer. Killed in between, its successor finds the
ticket or the lease, and the client asks again.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..adapters import peers, scopes
from ..adapters.device_nodes import COMMON, nodes_of
from ..adapters.scopes import Move
from ..errors import GpulabError, InputError
from ..rules import lease_wire as wire
from ..rules.lease_queue import Limits, Waiter, decide, refusal
from ..rules.leases import Lease, Wish
from . import lease_view
from .broker_world import BUSY, FAILED, Caller, Channel, World
from .lease_strays import own_nodes
from .leases import LeaseStore, Ticket, alive, waiting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..adapters.peers import Peer
    from ..rules.cards import Cards
    from ..rules.lease_queue import Outcome
    from ..settings import Allocator
    from .lease_view import View

_LOOK_AGAIN = 2.0
"""Seconds until the cards are read again for somebody who waits, though no lease has ended: strangers come and go."""


class Broker:
    """Gives leases.

    Args:
        settings: the section [allocator].
        world: the outside.
    """

    def __init__(self, settings: Allocator, world: World | None = None) -> None:
        """Take up what a predecessor left: leases and tickets are on file."""
        self._world = world or World()
        self._settings = settings
        self._limits = Limits(settings.max_cards, settings.max_leases)
        self._store = LeaseStore(self._world.root, self._world.log)
        self._callers: dict[int, Caller] = {}
        self._plans: list[tuple[Channel, wire.Message]] = []
        self._questions: list[Channel] = []
        self._view: View | None = None
        self._looked = float("-inf")
        self._tickets = {ticket.number: ticket for ticket in self._store.tickets()}
        self._complaint = ""
        taken = {lease.id for lease in self._store.leases()}
        for number in taken & set(self._tickets):  # killed between writing the lease and dropping the ticket
            self._drop(number)

    @property
    def waiting(self) -> bool:
        """Whether somebody stands in line."""
        return bool(self._tickets)

    def ask(self, channel: Channel, data: bytes) -> None:
        """Take a request; it is answered by the next `serve`."""
        try:
            message = wire.parse(data)
        except InputError as error:
            self._refuse(channel, str(error))
            return
        if message.verb == wire.STATUS:
            self._questions.append(channel)
        elif channel.peer.uid == 0:
            self._refuse(channel, "root takes no lease: leases are for members; start the command as one of them")
        elif message.verb == wire.PLAN:
            self._plans.append((channel, message))
        else:
            self._line_up(channel, message)

    def hang_up(self, channel: Channel) -> None:
        """Forget a client that has gone: its place in the line is free at once."""
        self._questions = [each for each in self._questions if each is not channel]
        self._plans = [each for each in self._plans if each[0] is not channel]
        for number in [number for number, caller in self._callers.items() if caller.channel is channel]:
            self._drop(number)

    def due(self) -> bool:
        """Tell whether there is something to do: a question, or a change that those who wait may profit from."""
        if self._questions or self._plans or any(caller.fresh for caller in self._callers.values()):
            return True
        if not self._tickets:
            return False
        if self._view is None or self._world.monotonic() - self._looked >= _LOOK_AGAIN:
            return True
        return any(
            not alive(lease, self._world.root) for lease in self._view.leases if lease.id not in self._view.strays
        )

    def serve(self) -> None:
        """Look at the cards, give what can be given, and answer everybody who asked."""
        questions, self._questions = self._questions, []
        plans, self._plans = self._plans, []
        self._look()
        if self._tickets:
            self._serve_line()
        for channel, message in plans:
            self._plan(channel, message)
        for channel in questions:
            channel.send(wire.answer(wire.STATUS, document=json.dumps(self._status())))
            channel.close()

    # Coming in

    def _line_up(self, channel: Channel, message: wire.Message) -> None:
        peer = channel.peer
        scope = scopes.scope_of(peer.pid, self._world.root)
        own = next((lease for lease in self._store.leases() if _same(lease, peer)), None)
        if own is not None and message.again:
            self._resume(channel, own, scope)
            return
        if scope:
            self._refuse(
                channel,
                f"this runs inside lease {scope.removesuffix('.scope').rpartition('-')[2]} already; run the command "
                "without allocate_gpu, or ask for more cards at the start",
            )
            return
        known = next((ticket for ticket in self._tickets.values() if _same(ticket, peer)), None)
        if known is not None:
            if not message.again or known.number in self._callers:
                self._refuse(channel, "this process stands in line already")
                return
            self._callers[known.number] = Caller(channel, message, known=True)
            return
        try:
            ticket = Ticket(
                number=self._store.number(),
                user=peer.user,
                uid=peer.uid,
                pid=peer.pid,
                start_ticks=peer.start_ticks,
                request=message.request,
                since=self._world.now(),
                command=message.command,
            )
            self._store.save_ticket(ticket)
        except OSError as error:
            self._refuse(channel, f"the broker cannot write /run/gpulab ({error.strerror}); tell the admin")
            return
        self._tickets[ticket.number] = ticket
        self._callers[ticket.number] = Caller(channel, message)

    def _resume(self, channel: Channel, lease: Lease, scope: str) -> None:
        """Answer a client again whose lease was written down before our predecessor died."""
        if scope:
            self._grant(channel, lease, "")
        elif scopes.pids(lease.scope, self._world.root):
            # Its owner's systemd can move a process out of the scope; what it left there still has the card.
            self._refuse(channel, f"this process has left lease {lease.id}, in which others run; it cannot come back")
        else:
            self._look()
            self._move([(channel, lease, "")])

    # Giving

    def _look(self) -> None:
        root = self._world.root
        on_file = self._store.leases()
        leases = [lease for lease in on_file if alive(lease, root)]
        holder = lease_view.holders(leases, root)
        for ticket in [ticket for ticket in self._tickets.values() if not waiting(ticket, root)]:
            caller = self._callers.get(ticket.number)
            self._drop(ticket.number)
            if caller is not None:  # somebody else keeps its connection open
                self._refuse(caller.channel, "the process that asked has ended")
        cards = self._world.look()
        if cards.reason != self._complaint:
            self._complaint = cards.reason
            self._world.log(f"the cards cannot be read: {cards.reason}" if cards.reason else "the cards are back")
        # A process may have joined or left a lease while NVML was asked: either way it is the lease's.
        holder.update(lease_view.holders(leases, root))
        strays = self._sweep(cards, [lease for lease in on_file if lease not in leases])
        held = [lease for lease in on_file if lease in leases or lease.id in strays]
        self._view = replace(lease_view.view(cards, held, holder), strays=strays)
        self._looked = self._world.monotonic()

    def _sweep(self, cards: Cards, ended: Sequence[Lease]) -> Mapping[int, str]:
        """Forget leases that have ended; return who still has the card of one open, by its id."""
        if cards.reason:
            return {}  # nothing is given now; which nodes they had is known when the cards are back
        known = self._view.strays if self._view else {}
        owners = {lease.id: lease.uid for lease in ended}
        strays = self._world.strays(own_nodes(cards, ended, self._world.root), owners)
        for lease in ended:
            who = strays.get(lease.id)
            if who is None:
                self._store.drop_lease(lease.id)
            elif lease.id not in known:
                self._world.log(f"lease {lease.id} of {lease.user} has ended, but {who} still has its card open")
        return strays

    def _serve_line(self) -> None:
        seen = self._seen()
        policy = self._world.policy()
        reserved = set(policy.bindings.values())
        hints: dict[int, str] = {}
        line = []
        for ticket in list(self._tickets.values()):
            wish = Wish(ticket.request, policy.bindings.get(ticket.user, ""))
            caller = self._callers.get(ticket.number)
            if caller is not None and caller.fresh:
                caller.fresh = False
                never = seen.cards.reason or refusal(ticket.request, seen.places, self._limits, wish, reserved)
                if never and not caller.known:  # who has waited already waits on
                    self._drop(ticket.number)
                    self._refuse(caller.channel, never)
                    continue
            held, hints[ticket.number] = policy.judge(ticket.request, ticket.user)
            if peers.stopped(ticket.pid, self._world.root / "proc"):
                held = "it is stopped (Ctrl-Z); `fg` lets it go on"
            line.append(Waiter(ticket.number, ticket.uid, ticket.user, wish, seen.cards.reason or held))
        outcomes = decide(seen.places, seen.leases, line, self._limits, reserved)
        for outcome in outcomes:
            if not outcome.cards:
                self._wait(outcome, len(outcomes) - sum(bool(each.cards) for each in outcomes))
        self._move(
            [
                (caller.channel if caller else None, lease, hints[outcome.number])
                for outcome in outcomes
                if outcome.cards
                for caller in [self._callers.get(outcome.number)]
                for lease in [self._write(outcome)]
                if lease is not None
            ]
        )

    def _wait(self, outcome: Outcome, length: int) -> None:
        caller = self._callers.get(outcome.number)
        if caller is None:
            return  # it will ask again
        if not caller.message.wait:
            ahead = f" ({outcome.position - 1} waiting)" if outcome.position > 1 else ""
            self._drop(outcome.number)
            self._refuse(
                caller.channel,
                f"no card is free for you now: {outcome.why}{ahead}; add --wait to stand in line (gpu-status: more)",
                BUSY,
            )
        elif caller.told != (outcome.position, outcome.why):
            caller.told = (outcome.position, outcome.why)
            caller.channel.send(wire.answer("wait", position=outcome.position, of=length, why=outcome.why))

    def _write(self, outcome: Outcome) -> Lease | None:
        """Turn a ticket into a lease on file, if the process that drew it may still have one."""
        ticket = self._tickets[outcome.number]
        caller = self._callers.get(outcome.number)
        proc = self._world.root / "proc"
        fit = waiting(ticket, self._world.root) and peers.plain(ticket.pid, ticket.uid, proc)
        if not fit or (caller is not None and not caller.channel.peer.alive()):
            self._drop(outcome.number)
            if caller is not None:
                self._refuse(caller.channel, "this process runs with other rights than when it asked")
            return None
        lease = Lease(
            id=ticket.number,
            user=ticket.user,
            uid=ticket.uid,
            pid=ticket.pid,
            start_ticks=ticket.start_ticks,
            cards=outcome.cards,
            since=self._world.now(),
            command=ticket.command,
            scope=scopes.scope_name(ticket.number),
            hours=ticket.request.hours,
            asked=ticket.since,
        )
        try:
            self._store.save_lease(lease)
        except OSError as error:
            self._world.log(f"lease {lease.id} cannot be written down: {error.strerror}")
            self._drop(outcome.number)
            if caller is not None:
                self._refuse(caller.channel, f"the broker cannot write /run/gpulab ({error.strerror}); tell the admin")
            return None
        self._drop(outcome.number)
        return lease

    def _move(self, granted: Sequence[tuple[Channel | None, Lease, str]]) -> None:
        """Move processes into their scopes, and tell those whose connection we have."""
        orders = [self._order(lease) for _, lease, _ in granted]
        moves = [order for order in orders if isinstance(order, Move)]
        answers = iter(self._world.mover.move(moves) if moves else [])
        for (channel, lease, hint), order in zip(granted, orders, strict=True):
            problem = next(answers) if isinstance(order, Move) else order
            if problem:
                self._world.log(f"lease {lease.id} of {lease.user} came to nothing: {problem}")
                if channel is not None:
                    self._refuse(channel, problem)
                if not alive(lease, self._world.root):
                    self._store.drop_lease(lease.id)
                    continue
                # Systemd may do it later: the card is free when its process has ended, not before.
            seen = self._seen()
            if lease not in seen.leases:
                self._view = replace(seen, leases=(*seen.leases, lease))
            if channel is not None and not problem:
                self._grant(channel, lease, hint)

    def _order(self, lease: Lease) -> Move | str:
        """Return how the process of a lease is to be moved, or why it cannot be."""
        nodes = [*COMMON, *self._settings.devices]
        try:
            for card in lease.cards:
                device, instance = self._seen().device(card.uuid)
                nodes += nodes_of(device, instance, self._world.root)
                problem = self._world.make_nodes(device, instance)
                if problem:  # some programs can do without it
                    self._world.log(f"lease {lease.id}: {problem}")
        except KeyError as error:
            return f"{error.args[0]} is not there any more; ask again"
        except GpulabError as error:
            return str(error)
        description = f"GPU lease {lease.id} of {lease.user}"
        return Move(lease.pid, lease.scope, scopes.slice_name(lease.uid), description, tuple(dict.fromkeys(nodes)))

    def _grant(self, channel: Channel, lease: Lease, hint: str) -> None:
        places = {place.uuid: place.name for place in self._seen().places}
        names = ", ".join(places.get(card.uuid, card.uuid) for card in lease.cards)
        visible = ",".join(card.uuid for card in lease.cards)
        channel.send(wire.answer("lease", id=lease.id, visible=visible, names=names, hint=hint))
        channel.close()

    # Telling

    def _plan(self, channel: Channel, message: wire.Message) -> None:
        seen = self._seen()
        peer = channel.peer
        policy = self._world.policy()
        reserved = set(policy.bindings.values())
        wish = Wish(message.request, policy.bindings.get(peer.user, ""))
        never = seen.cards.reason or refusal(message.request, seen.places, self._limits, wish, reserved)
        if never:
            self._refuse(channel, never)
            return
        held, hint = policy.judge(message.request, peer.user)
        line = [
            Waiter(ticket.number, ticket.uid, ticket.user, Wish(ticket.request, policy.bindings.get(ticket.user, "")))
            for ticket in self._tickets.values()
        ]
        last = max([ticket.number for ticket in self._tickets.values()], default=0) + 1
        line.append(Waiter(last, peer.uid, peer.user, wish, held))
        outcome = decide(seen.places, seen.leases, line, self._limits, reserved)[-1]
        if not outcome.cards:
            self._refuse(channel, f"no card would be given now: {outcome.why}", BUSY)
            return
        given = {card.uuid for card in outcome.cards}
        text = "; ".join(
            lease_view.praise(place, seen.leases, message.request) for place in seen.places if place.uuid in given
        )
        channel.send(wire.answer(wire.PLAN, say=text, hint=hint))
        channel.close()

    def _status(self) -> dict[str, Any]:
        now = self._world.now()
        line = [
            {
                "position": position,
                "user": ticket.user,
                "pid": ticket.pid,
                "cards": ticket.request.cards,
                "memory": ticket.request.memory,
                "shared": ticket.request.share,
                "command": ticket.command,
                "since": ticket.since,
                "seconds": max(0.0, now - ticket.since),
                "why": caller.told[1] if caller else "",
            }
            for position, ticket in enumerate(self._tickets.values(), start=1)
            for caller in [self._callers.get(ticket.number)]
        ]
        return lease_view.describe(self._seen(), line, now)

    def _seen(self) -> View:
        if self._view is None:
            self._look()
        assert self._view is not None  # noqa: S101 - _look has just set it
        return self._view

    def _drop(self, number: int) -> None:
        self._tickets.pop(number, None)
        self._callers.pop(number, None)
        self._store.drop_ticket(number)

    @staticmethod
    def _refuse(channel: Channel, why: str, status: int = FAILED) -> None:
        channel.send(wire.answer("refused", status=status, say=why))
        channel.close()


def _same(record: Lease | Ticket, peer: Peer) -> bool:
    return (record.pid, record.start_ticks) == (peer.pid, peer.start_ticks)
