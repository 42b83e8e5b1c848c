"""Routers: which machine takes a request (semantics 5; seed 001, "locality-aware scheduling").

A router reads the machines' loads and looks at their caches; looking never changes recency. Round robin
takes each machine in turn, ``random`` one drawn from the run's stream ``router``, ``least-loaded`` the
fewest queued prompt tokens. Session affinity keeps a session on the machine of its first request. The
longest prefix wins among all machines, or among the least loaded when largest / smallest load exceeds a
threshold. Prefill cost is new prefill tokens times the requests there, this one included. Overlap cost is a
weight times the prefill blocks, of this request and of those that wait there, plus the decode blocks; a
block on a lower tier is worth less than one on the GPU. Of equal machines the one chosen least often so far
wins, then the lowest number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from kvcache_sim.rng import stream
from kvcache_sim.spec.request import Load, SequenceState, matchable_blocks
from kvcache_sim.spec.settings import CacheSettings, RouterSettings
from kvcache_sim.tiers import COMPUTE, ROUTER_CREDITS
from kvcache_sim.values import dataclass

if TYPE_CHECKING:
    from kvcache_sim._core import Store


class Routed(Protocol):
    """A machine as routers see it."""

    store: Store
    #: How many tiers it has.
    tiers: int

    @property
    def load(self) -> Load:
        """What was sent there and is not done."""


@dataclass(slots=True)
class RouterView:
    """What a router may look at, and its settings."""

    machines: Sequence[Routed]
    settings: RouterSettings
    cache: CacheSettings
    seed: int
    #: Whether it sees the tier that a block lies on.
    sees_tiers: bool = True

    def found_blocks(self, s: SequenceState) -> list[int]:
        """Return by machine the leading blocks of a prompt that are found there, on any tier."""
        limit = matchable_blocks(self.cache, s.prompt_num_tokens)
        return [m.store.peek(s.request, limit)[0] if limit else 0 for m in self.machines]

    def new_tokens(self, s: SequenceState, found: Sequence[int]) -> list[int]:
        """Return by machine the prompt tokens that are not found there."""
        return [max(s.prompt_num_tokens - blocks * self.cache.block_size_tokens, 0) for blocks in found]

    def uncredited_blocks(self, s: SequenceState, found: Sequence[int]) -> list[float]:
        """Return by machine what its found blocks lack to be worth as many on the GPU."""
        lacking = []
        for machine, blocks in zip(self.machines, found, strict=True):
            parts = []
            if self.sees_tiers and machine.tiers > 1:
                parts = machine.store.match_prefix(s.request, blocks)
            lacking.append(sum((end - start) * (1 - ROUTER_CREDITS[tier]) for tier, start, end, _ in parts))
        return lacking


class Ties:
    """Of equal machines the one chosen least often so far, of those the lowest number; counts its choices."""

    def __init__(self, machines: int) -> None:
        self._chosen = [0] * machines

    def among(self, machines: Sequence[int]) -> int:
        """Return one of these machines, given in ascending order."""
        chosen = min(machines, key=self._chosen.__getitem__)
        self._chosen[chosen] += 1
        return chosen

    def least(self, costs: Sequence[float]) -> int:
        """Return the machine with the smallest cost."""
        smallest = min(costs)
        return self.among([machine for machine, cost in enumerate(costs) if cost == smallest])


class Router(Protocol):
    """Chooses a machine for each request, in arrival order."""

    def choose(self, s: SequenceState) -> int:
        """Return the index of the machine."""


class RoundRobin:
    """Each machine in turn."""

    def __init__(self, view: RouterView) -> None:
        self._machines = len(view.machines)
        self._next = 0

    def choose(self, s: SequenceState) -> int:
        """Return the next machine."""
        chosen = self._next
        self._next = (chosen + 1) % self._machines
        return chosen


class RandomChoice:
    """Any machine, each as likely."""

    def __init__(self, view: RouterView) -> None:
        self._machines = len(view.machines)
        self._draw = stream(view.seed, "router")

    def choose(self, s: SequenceState) -> int:
        """Return a machine drawn at random."""
        return int(self._draw.integers(self._machines))


class LeastLoaded:
    """The fewest queued prompt tokens."""

    def __init__(self, view: RouterView) -> None:
        self.view = view
        self._ties = Ties(len(view.machines))

    def choose(self, s: SequenceState) -> int:
        """Return the least loaded machine."""
        return self._ties.least([m.load.queued_tokens for m in self.view.machines])


class SessionAffinity(LeastLoaded):
    """The machine of the session; a first request, and one without a session, go to the least loaded."""

    def __init__(self, view: RouterView) -> None:
        super().__init__(view)
        self._machine: dict[int, int] = {}

    def choose(self, s: SequenceState) -> int:
        """Return the machine of the request's session."""
        chosen = self._machine.get(s.session)
        if chosen is None:
            chosen = super().choose(s)
            if s.session >= 0:
                self._machine[s.session] = chosen
        return chosen


class LongestPrefix:
    """The longest found prefix, of equal ones the smaller load in requests."""

    def __init__(self, view: RouterView) -> None:
        self.view = view
        self._ties = Ties(len(view.machines))

    def choose(self, s: SequenceState) -> int:
        """Return the machine with the longest prefix among those that the load allows."""
        loads = [m.load.requests for m in self.view.machines]
        found = self.view.found_blocks(s)
        least = min(loads)
        candidates = list(range(len(loads)))
        if max(loads) > self.view.settings.load_threshold * least:
            candidates = [m for m in candidates if loads[m] == least]
        longest = max(found[m] for m in candidates)
        candidates = [m for m in candidates if found[m] == longest]
        least = min(loads[m] for m in candidates)
        return self._ties.among([m for m in candidates if loads[m] == least])


class PrefillCost:
    """The smallest (prompt tokens not found there) × (requests there, this one included)."""

    def __init__(self, view: RouterView) -> None:
        self.view = view
        self._ties = Ties(len(view.machines))

    def choose(self, s: SequenceState) -> int:
        """Return the machine with the smallest product."""
        new = self.view.new_tokens(s, self.view.found_blocks(s))
        machines = self.view.machines
        return self._ties.least([n * (m.load.requests + 1) for n, m in zip(new, machines, strict=True)])


class OverlapCost:
    """The smallest weight × prefill blocks + decode blocks (the cost of NVIDIA Dynamo's KV router)."""

    def __init__(self, view: RouterView) -> None:
        self.view = view
        self._ties = Ties(len(view.machines))

    def choose(self, s: SequenceState) -> int:
        """Return the machine with the smallest cost; note what it is expected to compute of the prompt."""
        view, block = self.view, self.view.cache.block_size_tokens
        found = view.found_blocks(s)
        new, lacking = view.new_tokens(s, found), view.uncredited_blocks(s, found)
        costs = []
        for machine, tokens, lacks in zip(view.machines, new, lacking, strict=True):
            prefill = (machine.load.expected_prefill_tokens + tokens) / block + lacks
            active = machine.store.room(COMPUTE).active_blocks
            costs.append(view.settings.overlap_weight * prefill + active + -(-tokens // block))
        chosen = self._ties.least(costs)
        s.expected_prefill_tokens = new[chosen] + round(lacking[chosen] * block)
        return chosen


#: Router policy → constructor.
ROUTERS: dict[str, Callable[[RouterView], Router]] = {
    "round-robin": RoundRobin,
    "random": RandomChoice,
    "least-loaded": LeastLoaded,
    "session-affinity": SessionAffinity,
    "longest-prefix": LongestPrefix,
    "prefill-cost": PrefillCost,
    "overlap-cost": OverlapCost,
}
