"""Scorers of the gateway API's endpoint picker: each gives every machine a number from 0 to 1."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.serving.router.contract import Occupancy, RouterView
from kvcache_sim.serving.router.prefix_index import Matched
from kvcache_sim.serving.sequence import Arrival

Scores = NDArray[np.float64]

#: ``load-aware-scorer``: waiting requests from which a machine scores 0.
QUEUE_THRESHOLD = 128
#: ``token-load-scorer``: tokens in flight from which a machine scores 0.
MOST_TOKENS_IN_FLIGHT = 4_194_304
#: ``no-hit-lru-scorer``: machines remembered.
MOST_REMEMBERED = 1024


class Decision:
    """Inputs of the scorers for one request; the engines' reports are read once."""

    __slots__ = ("_occupancy", "matched", "sequence", "view")

    def __init__(self, view: RouterView, sequence: Arrival, matched: Matched) -> None:
        self.view, self.sequence, self.matched = view, sequence, matched
        self._occupancy: Occupancy | None = None

    def occupancy(self) -> Occupancy:
        """Return the engines' reports, as of the last poll."""
        if self._occupancy is None:
            self._occupancy = self.view.loads.occupancy()
        return self._occupancy

    def new_tokens(self) -> Scores:
        """Return by machine the prompt's tokens that the index does not have."""
        found = np.array(self.matched.blocks) * self.matched.block_tokens
        return np.maximum(self.sequence.prompt_num_tokens - found, 0)  # type: ignore[no-any-return]


class Scorer(Protocol):
    """A scorer of machines, updated with each choice."""

    def scores(self, decision: Decision) -> Scores:
        """Return a number from 0 to 1 by machine."""
        ...

    def sent(self, decision: Decision, machine: int) -> None:
        """Record the machine of the request."""
        ...


def _prefix(decision: Decision) -> Scores:
    """Score the share of the prompt's blocks; 0 for a prompt without blocks."""
    return np.array(decision.matched.blocks, np.float64) / max(decision.matched.of, 1)


def _spread(values: list[int]) -> Scores:
    """Score the smallest 1, the largest 0; 1 where all are equal."""
    numbers = np.array(values, np.float64)
    least, most = numbers.min(), numbers.max()
    return np.ones(len(numbers)) if least == most else (most - numbers) / (most - least)


def _queue(decision: Decision) -> Scores:
    return _spread(decision.occupancy().waiting)


def _running(decision: Decision) -> Scores:
    return _spread(decision.occupancy().running)


def _kv_use(decision: Decision) -> Scores:
    return 1 - np.array(decision.occupancy().kv_use)


def _load_aware(decision: Decision) -> Scores:
    """Score 0.5 without a queue, falling to 0 at ``QUEUE_THRESHOLD``."""
    waiting = np.array(decision.occupancy().waiting, np.float64)
    return 0.5 * (1 - np.minimum(waiting, QUEUE_THRESHOLD) / QUEUE_THRESHOLD)


def _active_requests(decision: Decision) -> Scores:
    """Score an idle machine 1, others by their distance from the busiest."""
    counts = np.array(decision.view.requests(), np.float64)
    most = max(counts.max(), 1.0)
    return np.where(counts <= 0, 1.0, (most - counts) / most)


def _token_load(decision: Decision) -> Scores:
    """Score by the prompt tokens in flight, those of this request included."""
    in_flight = np.array(decision.view.expected_prefill_tokens()) + decision.new_tokens()
    return 1 - np.minimum(in_flight, MOST_TOKENS_IN_FLIGHT) / MOST_TOKENS_IN_FLIGHT


def _lmetric(decision: Decision) -> Scores:
    """Score the least blocks to compute × (requests + 1) 1, the most 0; 0 for a prompt without blocks.

    Source: lmetric.go of llm-d/llm-d-router at 1fee9c80 (pull request 2351): no floor: full hits tie.
    """
    matched, requests = decision.matched, np.array(decision.view.requests())
    costs = np.maximum(matched.of - np.array(matched.blocks), 0) * matched.block_tokens * (requests + 1)
    return _spread(costs.tolist()) if matched.of else np.zeros(len(requests))


class _Plain:
    """A scorer that remembers nothing."""

    def __init__(self, scores: Callable[[Decision], Scores]) -> None:
        self.scores = scores

    def sent(self, decision: Decision, machine: int) -> None:
        """Do nothing."""


class _TokenLoad(_Plain):
    """``token-load``: adds the expected tokens to compute to the machine's load."""

    def __init__(self) -> None:
        super().__init__(_token_load)

    def sent(self, decision: Decision, machine: int) -> None:
        """Count the uncached tokens as in flight until the first token."""
        decision.sequence.expected_prefill_tokens = int(decision.new_tokens()[machine])


class _NoHitLru:
    """``no-hit-lru``: prompts without a hit go to the machine that is longest without a new prefix."""

    def __init__(self) -> None:
        self._used: OrderedDict[int, None] = OrderedDict()

    def scores(self, decision: Decision) -> Scores:
        """Score 0.5 for all if any machine has a hit, else by rank: never used first, then the oldest."""
        machines = len(decision.matched.blocks)
        if any(decision.matched.blocks):
            return np.full(machines, 0.5)
        ranked = [*(m for m in range(machines) if m not in self._used), *self._used]
        scores = np.empty(machines)
        scores[ranked] = 1 - np.arange(machines) / max(machines - 1, 1)
        return scores

    def sent(self, decision: Decision, machine: int) -> None:
        """Make the machine of a cold prompt the newest."""
        if not any(decision.matched.blocks):
            self._used[machine] = None
            self._used.move_to_end(machine)
            if len(self._used) > MOST_REMEMBERED:
                self._used.popitem(last=False)


class _SessionAffinity:
    """``session-affinity``: 1 for the machine of the session's last request, else 0."""

    def __init__(self) -> None:
        self._machine: dict[int, int] = {}

    def scores(self, decision: Decision) -> Scores:
        """Score the session's machine."""
        scores = np.zeros(len(decision.matched.blocks))
        bound = self._machine.get(decision.sequence.session)
        if bound is not None:
            scores[bound] = 1.0
        return scores

    def sent(self, decision: Decision, machine: int) -> None:
        """Bind the session."""
        if decision.sequence.session >= 0:
            self._machine[decision.sequence.session] = machine


#: Name in ``router.scorers`` → constructor.
SCORERS: dict[str, Callable[[], Scorer]] = {
    "prefix": lambda: _Plain(_prefix),
    "kv-use": lambda: _Plain(_kv_use),
    "queue": lambda: _Plain(_queue),
    "running": lambda: _Plain(_running),
    "load-aware": lambda: _Plain(_load_aware),
    "active-requests": lambda: _Plain(_active_requests),
    "lmetric": lambda: _Plain(_lmetric),
    "token-load": _TokenLoad,
    "no-hit-lru": _NoHitLru,
    "session-affinity": _SessionAffinity,
}
