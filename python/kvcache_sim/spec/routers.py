"""Routers choose the machine of a request (semantics 5; seed 001, "locality-aware scheduling").

A router reads the machines' loads and caches without a change of recency. Round robin takes each machine in
turn, ``random`` draws one from the run's stream ``router``, ``least-loaded`` takes the fewest queued prompt
tokens. Session affinity keeps a session on the machine of its first request. The longest prefix wins among
all machines, or among the least loaded when largest / smallest load exceeds a threshold. ``prefill-cost``
takes the fewest tokens to compute times the requests there, this one included. Of equal machines
the least often chosen so far wins, then the lowest number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kvcache_sim.base.rng import stream
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.serving.settings import RouterSettings
from kvcache_sim.spec.block_store import BlockStore
from kvcache_sim.spec.request import Load, SequenceState


class Routed(Protocol):
    """A machine as routers see it: its store, and its load."""

    store: BlockStore

    @property
    def load(self) -> Load: ...  # noqa: D102  # a line above


class Router:
    """Chooses a machine for each request, in arrival order."""

    def __init__(
        self,
        policy: str,
        machines: Sequence[Routed],
        settings: RouterSettings,
        cache: CacheSettings,
        seed: int,
    ) -> None:
        self.machines = machines
        self.settings, self.cache = settings, cache
        self._policy = self.policies()[policy]
        self._draw = stream(seed, "router")
        #: Choices so far by machine; by session the machine of its first request.
        self._chosen = [0] * len(machines)
        self._of_session: dict[int, int] = {}

    def policies(self) -> Mapping[str, Policy]:
        """Return the policies by name."""
        return ROUTERS

    def choose(self, s: SequenceState) -> int:
        """Return the index of a request's machine."""
        return self._policy(self, s)

    def _round_robin(self, _: SequenceState) -> int:
        return self._among(range(len(self.machines)))

    def _random(self, _: SequenceState) -> int:
        return int(self._draw.integers(len(self.machines)))

    def _least_loaded(self, _: SequenceState) -> int:
        return self._least([machine.load.queued_tokens for machine in self.machines])

    def _session_affinity(self, s: SequenceState) -> int:
        if s.session < 0:
            return self._least_loaded(s)
        if s.session not in self._of_session:
            self._of_session[s.session] = self._least_loaded(s)
        return self._of_session[s.session]

    def _longest_prefix(self, s: SequenceState) -> int:
        loads = [machine.load.requests for machine in self.machines]
        found = self._found_blocks(s)
        candidates = list(range(len(loads)))
        if max(loads) > self.settings.load_threshold * min(loads):
            candidates = [m for m in candidates if loads[m] == min(loads)]
        longest = max(found[m] for m in candidates)
        candidates = [m for m in candidates if found[m] == longest]
        least = min(loads[m] for m in candidates)
        return self._among([m for m in candidates if loads[m] == least])

    def _prefill_cost(self, s: SequenceState) -> int:
        new = self._new_tokens(s, self._found_blocks(s))
        return self._least([n * (m.load.requests + 1) for n, m in zip(new, self.machines, strict=True)])

    def _new_tokens(self, s: SequenceState, found: Sequence[int]) -> list[int]:
        """Return by machine the prompt tokens to compute there."""
        return [max(s.prompt_num_tokens - blocks * self.cache.block_size_tokens, 0) for blocks in found]

    def _found_blocks(self, s: SequenceState) -> list[int]:
        """Return by machine the leading blocks of a prompt cached there, on any tier."""
        limit = self.cache.matchable_blocks(s.prompt_num_tokens)
        return [m.store.peek(s.request, limit)[0] if limit else 0 for m in self.machines]

    def _least(self, costs: Sequence[float]) -> int:
        smallest = min(costs)
        return self._among([machine for machine, cost in enumerate(costs) if cost == smallest])

    def _among(self, machines: Sequence[int]) -> int:
        """Return one of equal machines, given in ascending order."""
        chosen = min(machines, key=self._chosen.__getitem__)
        self._chosen[chosen] += 1
        return chosen


#: Chooses the index of a machine.
Policy = Callable[[Any, SequenceState], int]
#: Router policy → choice.
ROUTERS: dict[str, Policy] = {
    "round-robin": Router._round_robin,
    "random": Router._random,
    "least-loaded": Router._least_loaded,
    "session-affinity": Router._session_affinity,
    "longest-prefix": Router._longest_prefix,
    "prefill-cost": Router._prefill_cost,
}
