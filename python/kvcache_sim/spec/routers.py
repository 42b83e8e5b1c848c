"""Routers: which machine takes a request (semantics 5; seed 001, "locality-aware scheduling").

A router reads the machines' loads and looks at their caches; looking never changes recency. Round robin takes
each machine in turn, ``random`` one drawn from the run's stream ``router``, ``least-loaded`` the fewest
queued prompt tokens. Session affinity keeps a session on the machine of its first request. The longest prefix
wins among all machines, or among the least loaded when largest / smallest load exceeds a threshold. Prefill
cost is new prefill tokens times the requests there, this one included. Overlap cost is a weight times the
prefill blocks, of this request and of those that wait there, plus the decode blocks; a block on a lower tier
is worth less than one on the GPU. Of equal machines the one chosen least often so far wins, then the lowest
number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.rng import stream
from kvcache_sim.serving.settings import RouterSettings
from kvcache_sim.spec.request import Load, SequenceState
from kvcache_sim.tiers import COMPUTE, ROUTER_CREDITS

if TYPE_CHECKING:
    from kvcache_sim._core import Store


class Routed(Protocol):
    """A machine as routers see it: its store, its number of tiers, and what was sent there."""

    store: Store
    tiers: int

    @property
    def load(self) -> Load: ...  # noqa: D102  # a line above


class Router:
    """Chooses a machine for each request, in arrival order, by a policy of ``ROUTERS``.

    ``sees_tiers``: whether it credits a block by the tier that it lies on.
    """

    def __init__(
        self,
        policy: str,
        machines: Sequence[Routed],
        settings: tuple[RouterSettings, CacheSettings],
        seed: int,
        sees_tiers: bool = True,
    ) -> None:
        self.machines = machines
        self.settings, self.cache = settings
        self.sees_tiers = sees_tiers
        self._policy = ROUTERS[policy]
        self._draw = stream(seed, "router")
        #: By machine how often it was chosen; by session the machine of its first request.
        self._chosen = [0] * len(machines)
        self._of_session: dict[int, int] = {}

    def choose(self, s: SequenceState) -> int:
        """Return the index of the machine that takes a request."""
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

    def _overlap_cost(self, s: SequenceState) -> int:
        block, found, costs = self.cache.block_size_tokens, self._found_blocks(s), []
        new = self._new_tokens(s, found)
        lacking = [self._lacking_blocks(s, m, blocks) for m, blocks in zip(self.machines, found, strict=True)]
        for machine, tokens, lacks in zip(self.machines, new, lacking, strict=True):
            prefill = (machine.load.expected_prefill_tokens + tokens) / block + lacks
            active = machine.store.room(COMPUTE).active_blocks
            costs.append(self.settings.overlap_weight * prefill + active + -(-tokens // block))
        chosen = self._least(costs)
        s.expected_prefill_tokens = new[chosen] + round(lacking[chosen] * block)
        return chosen

    def _found_blocks(self, s: SequenceState) -> list[int]:
        """Return by machine the leading blocks of a prompt that are found there, on any tier."""
        limit = self.cache.matchable_blocks(s.prompt_num_tokens)
        return [m.store.peek(s.request, limit)[0] if limit else 0 for m in self.machines]

    def _new_tokens(self, s: SequenceState, found: Sequence[int]) -> list[int]:
        return [max(s.prompt_num_tokens - blocks * self.cache.block_size_tokens, 0) for blocks in found]

    def _lacking_blocks(self, s: SequenceState, machine: Routed, found: int) -> float:
        """Return what the blocks found on a machine lack to be worth as many on its GPU."""
        if not self.sees_tiers or machine.tiers == 1:
            return 0.0
        parts = machine.store.match_prefix(s.request, found)
        return sum((end - start) * (1 - ROUTER_CREDITS[tier]) for tier, start, end, _ in parts)

    def _least(self, costs: Sequence[float]) -> int:
        smallest = min(costs)
        return self._among([machine for machine, cost in enumerate(costs) if cost == smallest])

    def _among(self, machines: Sequence[int]) -> int:
        """Return one of equal machines, given in ascending order."""
        chosen = min(machines, key=self._chosen.__getitem__)
        self._chosen[chosen] += 1
        return chosen


#: Router policy → choice.
ROUTERS: dict[str, Callable[[Router, SequenceState], int]] = {
    "round-robin": Router._round_robin,
    "random": Router._random,
    "least-loaded": Router._least_loaded,
    "session-affinity": Router._session_affinity,
    "longest-prefix": Router._longest_prefix,
    "prefill-cost": Router._prefill_cost,
    "overlap-cost": Router._overlap_cost,
}
