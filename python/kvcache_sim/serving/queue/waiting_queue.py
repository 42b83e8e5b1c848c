"""The queue of a replica: first come first served, or by a queue order; preempted requests before all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

from kvcache_sim.engine import Engine
from kvcache_sim.serving.queue.order import QueueOrder, Waiting
from kvcache_sim.serving.sequence import SequenceState

#: An order looks at so many of the waiting requests, oldest first: it bounds the cost.
_WINDOW = 256


class WaitingQueue(deque[SequenceState]):
    """Requests that wait for admission, in order of arrival; preempted ones are put before all others.

    ``cached_tokens`` answers for an order; ``held_back`` says whether a request has to stay at a
    time (its blocks are on their way).
    """

    def __init__(
        self,
        order: QueueOrder | None,
        cached_tokens: Callable[[SequenceState], int],
        held_back: Callable[[int, int], bool] | None,
        engine: Engine,
    ) -> None:
        super().__init__()
        self.order = order
        self.cached_tokens = cached_tokens
        self.held_back = held_back
        self._engine = engine
        #: Who came later is not known yet (asynchronous scheduling decides a step ahead); None: all are.
        self._known_until_ns: int | None = None
        self._passed: dict[int, int] = {}

    def head(self) -> SequenceState | None:
        """Return who is next, None when all have to stay."""
        if self.order is None and self.held_back is None:
            return self[0] if self and self.knows(self[0].since_ns) else None
        held_back, now = self.held_back, self._engine.now_ns
        candidates = (
            s
            for s in islice(self, _WINDOW)
            if self.knows(s.since_ns) and (held_back is None or not held_back(s.request, now))
        )
        first = next(candidates, None)
        if first is None or self.order is None or first.preemptions:
            return first
        return min([first, *candidates], key=self._key)

    def know_until(self, ns: int | None) -> None:
        """Hide who came after a time; None: hide nobody."""
        self._known_until_ns = ns

    def knows(self, since_ns: int) -> bool:
        """Return whether the scheduler knows of who came at a time."""
        return self._known_until_ns is None or since_ns <= self._known_until_ns

    def _key(self, s: SequenceState) -> tuple[float, ...]:
        assert self.order is not None
        passed = self._passed.get(s.request, 0)
        tokens = s.prefill_target_tokens
        return self.order.key(
            Waiting(s.request, s.arrival_ns, s.turn, tokens, self.cached_tokens(s), passed, s.priority)
        )

    def take(self, s: SequenceState) -> None:
        """Take an admitted request out; those before it have been passed."""
        if self[0] is s:
            self.popleft()
        else:
            for other in islice(self, self.index(s)):
                self._passed[other.request] = self._passed.get(other.request, 0) + 1
            self.remove(s)
        self._passed.pop(s.request, None)
