"""The specification with fetch policies by estimate, which no seed asks for: a model of the core's rules.

A found run is loaded or recomputed, whichever should end earlier, for the whole run (``cheaper``) or from the
front block by block (``split``). Estimates come from the queues of the channels and from the step-time model;
layers that are loaded hide under compute (semantics 4).
"""

from collections.abc import Callable, Sequence

from kvcache_sim.base.tiers import COMPUTE, KV_SOURCES, REMOTE, STAGING, load_edge
from kvcache_sim.model.step_time import StepBatch, StepTime
from kvcache_sim.spec import movement_policies
from kvcache_sim.spec.admission import Admitter
from kvcache_sim.spec.block_store import Part
from kvcache_sim.spec.channels import Channel
from kvcache_sim.spec.mover import Mover
from kvcache_sim.spec.remote import RemoteReads

#: Number of evenly spread cuts that ``split`` tries: the estimate is smooth.
_CUTS = 32


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
        """Return the time to compute everything after the first ``blocks`` of some tokens."""
        past = min(blocks * self._block, tokens - 1)
        total = 0
        while past < tokens:
            chunk = min(tokens - past, self._budget)
            total += self.step_time.step(StepBatch(((chunk, past),), 0, 0, 0))
            past += chunk
        return total

    def arrival_ns(self, parts: Sequence[Part], blocks: int) -> tuple[int, int]:
        """Return the times at which the first and the last layer of the first ``blocks`` would arrive."""
        cut = [part._replace(end=min(part.end, blocks)) for part in parts if part.start < blocks]
        moved = [0] * len(KV_SOURCES)
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


def fetch_cheaper(plan: Plan) -> int:
    """Reuse all of the run or its ready blocks, whichever should end earlier; loading wins ties."""
    return plan.end if plan.done_ns(plan.end) <= plan.done_ns(plan.ready) else plan.ready


def fetch_split(plan: Plan) -> int:
    """Reuse the run up to the cut that should end earliest, of equal ones the longest."""
    span = plan.end - plan.ready
    cuts = sorted({plan.ready + span * i // _CUTS for i in range(_CUTS + 1)}, reverse=True)
    return min(cuts, key=plan.done_ns)


#: The fetch policies of this model.
ESTIMATING: dict[str, Callable[[Plan], int]] = {"cheaper": fetch_cheaper, "split": fetch_split}


class EstimatingAdmitter(Admitter):
    """Admissions that estimate what loading would take."""

    def _reused(self, plan: movement_policies.Plan) -> int:
        parts = self.parts
        budget, block = parts.batch.budget, self.cache.block_size_tokens
        estimates = Estimates(self.mover, parts.remote, parts.batch.step_time, budget, block)
        return ESTIMATING[self.movement.fetch](Plan(estimates, *plan))
