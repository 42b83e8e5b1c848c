"""The specification with routers by cost, which no seed asks for: a model of the core's rules.

Overlap cost is a weight times
the prefill blocks, of this request and of those that wait there, plus the decode blocks; a block on a lower
tier is worth less than one on the GPU, unless a decode machine is chosen. The tokens that overlap cost
expects
to be prefilled weigh on a machine until they are, or until a hand-over has come.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kvcache_sim.base.tiers import COMPUTE, ROUTER_CREDITS
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.spec.records import Milestones
from kvcache_sim.spec.request import SequenceState
from kvcache_sim.spec.routers import ROUTERS, Policy, Router


def _expected(s: Any, decodes: bool) -> list[int]:
    """Return the tokens that a router expected to be prefilled, or to cross, in a list of one."""
    tokens: list[int] = s.__dict__.setdefault("expected_to_cross" if decodes else "expected", [0])
    return tokens


def expected_tokens(s: SequenceState) -> int:
    """Return the prompt tokens that the router expected to be computed."""
    return _expected(s, False)[0]


class CostMilestones(Milestones):
    """Milestones that count what routers expected to be prefilled."""

    expected_prefill_tokens = 0

    def arrived(self, s: SequenceState, now: int) -> None:
        super().arrived(s, now)
        self.expected_prefill_tokens += expected_tokens(s)

    def prefilled(self, s: SequenceState, now: int) -> None:
        super().prefilled(s, now)
        self.expected_prefill_tokens -= expected_tokens(s)

    def taken_over(self, s: SequenceState) -> None:
        super().taken_over(s)
        self.expected_prefill_tokens += _expected(s, True)[0]

    def handed_over(self, s: SequenceState, now: int, delays_token: bool) -> None:
        super().handed_over(s, now, delays_token)
        self.expected_prefill_tokens -= _expected(s, True)[0]


class CostRouter(Router):
    """A router that may choose by cost."""

    def policies(self) -> Mapping[str, Policy]:
        return ALL_ROUTERS

    def _overlap_cost(self, s: SequenceState) -> int:
        block, found, costs = self.cache.block_size_tokens, self._found_blocks(s), []
        new = self._new_tokens(s, found)
        lacking = [self._lacking_blocks(s, m, blocks) for m, blocks in zip(self.machines, found, strict=True)]
        machines: Sequence[Any] = self.machines
        for machine, tokens, lacks in zip(machines, new, lacking, strict=True):
            prefill = (machine.milestones.expected_prefill_tokens + tokens) / block + lacks
            private = machine.store.occupancy(COMPUTE).private_blocks
            costs.append(self.settings.overlap_weight * prefill + private + -(-tokens // block))
        chosen = self._least(costs)
        _expected(s, s.machine >= 0)[0] = new[chosen] + round(lacking[chosen] * block)
        return chosen

    def _lacking_blocks(self, s: SequenceState, machine: Any, found: int) -> float:
        """Return what the blocks found on a machine lack to be worth as many on its GPU."""
        if s.machine >= 0 or machine.tiers == 1:
            return 0.0
        parts = machine.store.match_prefix(s.request, found)
        return sum((end - start) * (1 - ROUTER_CREDITS[tier]) for tier, start, end, _ in parts)


COSTS: dict[str, Policy] = {"overlap-cost": CostRouter._overlap_cost}
ALL_ROUTERS = ROUTERS | COSTS


def has_costs(settings: ClusterSettings) -> bool:
    """Return True if settings need this model."""
    return settings.router.policy in COSTS or settings.handover.router in COSTS
