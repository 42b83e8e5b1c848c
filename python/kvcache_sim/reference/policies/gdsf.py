"""Greedy dual size frequency: age + uses × cost / size (Cherkasova 1998); blocks have equal size and cost."""

from __future__ import annotations

from kvcache_sim.policies.settings import Variant
from kvcache_sim.reference.policies.block import Block
from kvcache_sim.reference.policies.ranked import Ranked


class Gdsf(Ranked):
    """The age is the priority of the last victim: what stays must earn more than what left."""

    def __init__(self) -> None:
        super().__init__()
        self.age = 0.0

    def key(self, block: Block) -> tuple[float, ...]:
        """Return age + uses, then the last access."""
        return (self.age + block.hits, block.last_access)

    def learn(self, key: tuple[float, ...]) -> None:
        """Grow old with the victims."""
        self.age = max(self.age, key[0])


def make(variant: Variant, capacity: int) -> Gdsf:
    """Return the policy of a tier of ``capacity`` blocks."""
    return Gdsf()
