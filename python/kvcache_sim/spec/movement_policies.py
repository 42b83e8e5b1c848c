"""The policies of movement: what is fetched and written (seed 001, "Caching Policy").

Fetch: a found run that lies below the GPU is loaded (``always``), recomputed (``never``), or whichever of the
two should end earlier, for the whole run (``cheaper``) or from the front block by block (``split``).
Estimates come from the queues of the channels and from the step-time model; layers that are loaded hide
under compute (semantics 4). Write, for each edge: ``back`` copies a block down when it is evicted,
``through`` as soon as it is there (seed 001: "write through from GPU to CPU").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kvcache_sim.model.step_time import StepBatch, StepTime
from kvcache_sim.spec.channels import Channel
from kvcache_sim.spec.mover import Mover, Part
from kvcache_sim.spec.remote import RemoteReads
from kvcache_sim.tiers import COMPUTE, PLACES, REMOTE, STAGING, load_edge

if TYPE_CHECKING:
    from kvcache_sim._core import Store

#: ``split`` tries so many evenly spread cuts: the estimate is smooth.
_CUTS = 32


# -- fetch


class Estimates:
    """The estimates by which one machine decides between loading and recomputing."""

    def __init__(
        self,
        mover: Mover,
        remote: RemoteReads | None,
        step_time: StepTime,
        budget_tokens: int,
        block_size_tokens: int,
    ) -> None:
        self.mover = mover
        self.remote = remote
        self.step_time = step_time
        self._budget = budget_tokens
        self._block = block_size_tokens

    def compute_ns(self, tokens: int, blocks: int) -> int:
        """Return what computing everything after the first ``blocks`` of some tokens takes."""
        past = min(blocks * self._block, tokens - 1)
        total = 0
        while past < tokens:
            chunk = min(tokens - past, self._budget)
            total += self.step_time.step(StepBatch(((chunk, past),), 0, 0, 0))
            past += chunk
        return total

    def arrival_ns(self, parts: Sequence[Part], blocks: int) -> tuple[int, int]:
        """Return when the first and the last layer of the KV of the first ``blocks`` would arrive."""
        cut = [part._replace(end=min(part.end, blocks)) for part in parts if part.start < blocks]
        moved = [0] * len(PLACES)
        for part in cut:
            moved[part.tier] += part.end - part.start
        moved[COMPUTE] = 0
        if not any(moved):
            return 0, 0
        up = self.mover.channels[load_edge(STAGING)]
        times = self._hop(up, sum(moved))
        staged = sum(moved[STAGING + 1 : REMOTE])
        if staged:
            times = self._after(self._staged(moved, STAGING + 1), times, self._hop(up, staged))
        away = next((part.away for part in cut if part.away is not None), None)
        if away is not None and self.remote is not None:
            network = self.remote.channels.between(away[0], self.mover.machine)
            below = self._hop(network, moved[REMOTE])
            times = self._after(below, times, self._hop(up, moved[REMOTE]))
        return times

    def _staged(self, moved: Sequence[int], level: int) -> tuple[int, int]:
        """Return when layers arrive above a tier of what ``moved`` has there and further down."""
        channel = self.mover.channels[load_edge(level)]
        times = self._hop(channel, sum(moved[level:REMOTE]))
        deeper = sum(moved[level + 1 : REMOTE])
        if deeper:
            times = self._after(self._staged(moved, level + 1), times, self._hop(channel, deeper))
        return times

    def _after(
        self, below: tuple[int, int], all_up: tuple[int, int], own_up: tuple[int, int]
    ) -> tuple[int, int]:
        """Return when layers arrive that take a lower hop before another one."""
        if not self.mover.pipelining:
            last = max(all_up[1], below[1] + own_up[1])
            return last, last
        return max(all_up[0], below[0] + own_up[0]), max(all_up[1], below[1] + own_up[0])

    def _hop(self, channel: Channel, blocks: int) -> tuple[int, int]:
        return channel.expected_ns(self.mover.size_of(blocks), self.mover.engine.now_ns)


class Plan:
    """A found run, and estimates of what loading a part of it and computing the rest would cost."""

    def __init__(self, estimates: Estimates, parts: Sequence[Part], ready: int, tokens: int) -> None:
        self._estimates = estimates
        self.parts = parts
        #: Leading blocks that are ready on the GPU.
        self.ready = ready
        #: Tokens that need KV.
        self.tokens = tokens

    @property
    def end(self) -> int:
        """The block after the last one found."""
        return self.parts[-1].end

    def done_ns(self, blocks: int) -> int:
        """Return in how many ns the prefill should end if the first ``blocks`` are reused."""
        first, last = self._estimates.arrival_ns(self.parts, blocks)
        compute = self._estimates.compute_ns(self.tokens, blocks)
        mover = self._estimates.mover
        if not mover.pipelining:
            return last + compute
        return max(compute, first + compute, last - (-compute // mover.layers))


def fetch_always(plan: Plan) -> int:
    """Reuse the whole run."""
    return plan.end


def fetch_never(plan: Plan) -> int:
    """Reuse what the GPU has, or is getting for another request."""
    return max((part.end for part in plan.parts if part.tier == COMPUTE), default=0)


def fetch_cheaper(plan: Plan) -> int:
    """Reuse all of the run or what is ready, whichever should end earlier; loading wins ties."""
    return plan.end if plan.done_ns(plan.end) <= plan.done_ns(plan.ready) else plan.ready


def fetch_split(plan: Plan) -> int:
    """Reuse the run up to the cut that should end earliest, of equal ones the longest."""
    span = plan.end - plan.ready
    cuts = sorted({plan.ready + span * i // _CUTS for i in range(_CUTS + 1)}, reverse=True)
    return min(cuts, key=plan.done_ns)


#: Fetch policy → how many leading blocks of a plan are reused.
FETCH: dict[str, Callable[[Plan], int]] = {
    "always": fetch_always,
    "never": fetch_never,
    "cheaper": fetch_cheaper,
    "split": fetch_split,
}


# -- write


class WritePolicies:
    """The write policy of each edge of a machine, by upper tier from the GPU down, at work on its store."""

    def __init__(self, store: Store, policies: Sequence[str]) -> None:
        self._store = store
        self._through = [policy == "through" for policy in policies]
        #: Whether what a step commits is copied down at once.
        self.at_commit = self._through[0]

    def committed(self, lease: int, blocks: tuple[int, int], now_ns: int) -> int | None:
        """Copy blocks [first, past the last) that a step computed; return the move, None without one."""
        return self._store.write_through(lease, *blocks, now_ns) if self.at_commit else None

    def arrived(self, tier: int, move: int, now_ns: int) -> None:
        """Copy on what a move is about to make ready on a tier."""
        if tier < len(self._through) and self._through[tier]:
            self._store.write_on(move, now_ns)
