"""The simulated cluster on the wall clock: requests enter at their arrival, tokens leave when due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kvcache_sim.base.units import NS_PER_MS
from kvcache_sim.extras.live.clock import WallClock
from kvcache_sim.extras.live.prompts import BlockNumbers
from kvcache_sim.extras.live.ticket import Ticket
from kvcache_sim.serving.sequence import ClosedRequest, Status
from kvcache_sim.simulation.live import LiveSimulation, requests_of

_STEP_NS = NS_PER_MS // 20
#: Step of all lags of a second and more.
_LONGEST_STEPS = 20_000


class TokenLags:
    """A histogram of lags. Memory: one number per step of 50 µs."""

    def __init__(self) -> None:
        self._counts = [0] * (_LONGEST_STEPS + 1)
        self._longest_ns = 0

    def add(self, lag_ns: int, tokens: int) -> None:
        """Count the lag of ``tokens`` tokens in one write: the lag of the first."""
        self._counts[min(max(lag_ns, 0) // _STEP_NS, _LONGEST_STEPS)] += tokens
        if lag_ns > self._longest_ns:
            self._longest_ns = lag_ns

    def percentile_ms(self, part: float) -> float:
        """Return a percentile (ms): the upper edge of its step, at most the longest lag; ``part``: 0 to 1."""
        wanted, seen = part * self.tokens, 0
        for step, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return min((step + 1) * _STEP_NS, self._longest_ns) / NS_PER_MS
        return 0.0

    @property
    def tokens(self) -> int:
        """Number of counted tokens."""
        return sum(self._counts)

    @property
    def text(self) -> str:
        """The line printed at the end of a run."""
        p50, p90, p99, longest = (self.percentile_ms(part) for part in (0.5, 0.9, 0.99, 1.0))
        return f"p50 {p50:.2f}  p90 {p90:.2f}  p99 {p99:.2f}  max {longest:.2f} ms of {self.tokens:,} tokens"


#: Arrivals between two passes that forget ids of finished requests.
_FORGET_EACH = 1 << 14


class Witness(Protocol):
    """An observer of a fleet: metrics, events, the log of arrivals."""

    def arrived(self, ticket: Ticket, numbers: Sequence[int]) -> None:
        """Called after a request was accepted; ``numbers``: its blocks."""

    def closed(self, ticket: Ticket, sequence: ClosedRequest, now_ns: int) -> None:
        """Called after a request was finished or aborted."""

    def on_abort(self, ticket: Ticket, at_ns: int) -> None:
        """Called when a client aborts a request, before it leaves the cluster."""

    def advanced(self, now_ns: int) -> None:
        """Called after the simulation advanced to a time."""

    def cleared(self, now_ns: int) -> None:
        """Called after every cache was emptied."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A submitted request: tokens of the prompt and of its answer."""

    tokens: list[int]
    answer: Sequence[int]
    finish_reason: str = "length"
    priority: int = 0
    salt: str = ""
    #: The machine that it was sent to; None: the scenario's router chooses.
    machine: int | None = None


class Fleet:
    """Advances a simulation with the wall clock, and keeps the tickets of its open requests."""

    def __init__(
        self, simulate: Callable[[Fleet], LiveSimulation], clock: WallClock, blocks: BlockNumbers
    ) -> None:
        self.clock, self.blocks = clock, blocks
        self.open: dict[int, Ticket] = {}
        self.witnesses: list[Witness] = []
        #: Callback for times between two tokens of a request: its machine, ns, and the count.
        self.gap: Callable[[int, int, int], None] | None = None
        #: Everything up to and including this time has happened.
        self.ran_to_ns = 0
        self.broken: BaseException | None = None
        self.lags = TokenLags()
        #: Tickets to notify once the simulation has advanced to now.
        self._news: list[Ticket] = []
        self._kept = 0
        self._timer: asyncio.TimerHandle | None = None
        self.simulation = simulate(self)

    def start(self) -> None:
        """Start the simulation's own events."""
        self.simulation.cluster.start()
        self.simulation.sampler.start()

    # -- calls of clients

    def submit(self, prompt: Prompt, came_ns: int | None = None) -> Ticket:
        """Accept a request and return its ticket.

        It arrives now, or at ``came_ns`` if no event has happened since. The tokenization of its text is then
        part of the cluster's time, not added to it.
        """
        numbers = self.blocks.number([*prompt.tokens, *prompt.answer[:]], prompt.salt)
        at = self._now() if came_ns is None else max(came_ns, self.ran_to_ns + 1)
        inputs, outputs = len(prompt.tokens), len(prompt.answer)
        ticket = Ticket(self.simulation.fed, at, inputs, outputs, prompt.finish_reason)
        self.open[ticket.number] = ticket
        window = requests_of(self.blocks.block_size, [(at, inputs, outputs, numbers)], inputs + outputs)
        for witness in self.witnesses:
            witness.arrived(ticket, numbers)
        self.simulation.feed(window, self.blocks.given, prompt.machine)
        self._run_to(at)
        ticket.machine = self.simulation.last_machine
        if self.simulation.ids_kept > 2 * self._kept + _FORGET_EACH:
            self._forget()
        return ticket

    def abort(self, ticket: Ticket) -> None:
        """Abort a client's request; no effect if it is finished."""
        if ticket.closed or ticket.aborted:
            return
        ticket.aborted, at = True, self._now()
        for witness in self.witnesses:
            witness.on_abort(ticket, at)
        self.simulation.abort(ticket.number, at)
        self._run_to(at)

    def reset(self) -> bool:
        """Empty the caches; False while they are in use."""
        self._notify_advanced()
        cleared = self.simulation.clear()
        if cleared:
            for witness in self.witnesses:
                witness.cleared(self.ran_to_ns)
        return cleared

    # -- notifications of the simulation

    def tokens(self, requests: Sequence[int], now_ns: int) -> None:
        """Count one token of each request."""
        tickets, news = self.open, self._news
        machine, gap_ns, times = 0, 0, 0
        for request in requests:
            ticket = tickets[request]
            last_ns, ticket.last_ns = ticket.last_ns, now_ns
            ticket.tokens_out += 1
            if ticket.due_ns < 0 and ticket.streams:
                ticket.due_ns = now_ns
                news.append(ticket)
            if last_ns < 0:
                continue
            if now_ns - last_ns == gap_ns and ticket.machine == machine:  # most of a step's requests
                times += 1
                continue
            self._count_gaps(machine, gap_ns, times)
            machine, gap_ns, times = ticket.machine, now_ns - last_ns, 1
        self._count_gaps(machine, gap_ns, times)

    def _count_gaps(self, machine: int, gap_ns: int, times: int) -> None:
        if times and self.gap is not None:
            self.gap(machine, gap_ns, times)

    def closed(self, sequence: ClosedRequest, now_ns: int) -> None:
        """Close the ticket of a request that has left."""
        ticket = self.open.pop(sequence.request)
        ticket.cached_tokens = max(sequence.cached_prefix_length_used, 0)
        ticket.closed = True
        ticket.turned_away = sequence.status is Status.TURNED_AWAY
        ticket.aborted = sequence.status is Status.ABORTED or ticket.turned_away
        for witness in self.witnesses:
            witness.closed(ticket, sequence, now_ns)
        self._news.append(ticket)

    def wrote(self, ticket: Ticket, since_ns: int, tokens: int) -> None:
        """Record that ``tokens`` of a ticket's tokens are written now, the first due at ``since_ns``."""
        lag_ns = self.clock.behind_ns(since_ns)
        self.lags.add(lag_ns, tokens)
        ticket.late(lag_ns)

    # -- the clock

    def _now(self) -> int:
        """Return a time without events so far: new events come after all past events."""
        return max(self.clock.now_ns(), self.ran_to_ns + 1)

    def advance(self) -> None:
        """Run all due events, and schedule the next wake-up."""
        self._run_to(max(self.clock.now_ns(), self.ran_to_ns))

    def _run_to(self, until_ns: int) -> None:
        try:
            self.simulation.run_to(until_ns)
        except BaseException as error:
            self.broken = error
            raise
        self.ran_to_ns = max(self.ran_to_ns, until_ns)
        self._notify_advanced()
        self._notify_news()
        self._wake_at(self.simulation.engine.next_ns)

    def _notify_advanced(self) -> None:
        for witness in self.witnesses:
            witness.advanced(self.ran_to_ns)

    def _notify_news(self) -> None:
        news, self._news = self._news, []
        for ticket in news:
            if ticket.on_progress is not None:
                ticket.on_progress()

    def _wake_at(self, next_ns: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if next_ns is not None:
            delay = max(self.clock.seconds_until(next_ns), 0.0)
            self._timer = asyncio.get_running_loop().call_later(delay, self.advance)

    def stop(self) -> None:
        """Abort the open requests and stop the clock."""
        for ticket in list(self.open.values()):
            self.abort(ticket)
        if self._timer is not None:
            self._timer.cancel()

    def _forget(self) -> None:
        kept = self.simulation.forget(sorted(self.open))
        if kept is not None:
            self.blocks.keep(kept)
            self._kept = len(kept)
