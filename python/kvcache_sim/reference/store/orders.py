"""Eviction orders other than recency over the reference's blocks: what they learn, and whom they name."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable
from typing import Protocol

from kvcache_sim.policies.plugins.hosted import HostedOrder
from kvcache_sim.reference.policies.block import Block as Facts
from kvcache_sim.reference.policies.block import Policy
from kvcache_sim.reference.policies.ranked import Ranked
from kvcache_sim.reference.policies.ttl import Ttl
from kvcache_sim.reference.store.blocks import Block

#: Whether a block is ready and not held, and whether no block after it has a copy on the tier.
Standing = Callable[[Block], tuple[bool, bool]]


class TierOrder(Protocol):
    """Who leaves a tier first."""

    known: dict[Hashable, Block]

    def join(self, block: Block, facts: Facts) -> None:
        """Take a block."""
        ...

    def used(self, block: Block, access: int, now_ns: int) -> None:
        """Count a use."""
        ...

    def leave(self, block: Block) -> None:
        """Forget a block, evicted or not."""
        ...

    def victim(self, wanted: int, now_ns: int, standing: Standing) -> Block | None:
        """Name the next of ``wanted`` victims."""
        ...

    def lapsed(self, now_ns: int, standing: Standing) -> Block | None:
        """Name a block whose time has run out."""
        ...


class PolicyOrder:
    """A policy of ``reference/policies`` as the order of a tier."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.known: dict[Hashable, Block] = {}
        self.facts: dict[Hashable, Facts] = {}

    def join(self, block: Block, facts: Facts) -> None:
        """Insert a block."""
        self.known[block.number], self.facts[block.number] = block, facts
        self.policy.on_miss(block.number)
        self.policy.insert(facts)

    def used(self, block: Block, access: int, now_ns: int) -> None:
        """Count a use."""
        facts = self.facts[block.number]
        facts.hits += 1
        facts.last_access, facts.last_access_ns = access, now_ns
        self.policy.on_hit(facts)

    def leave(self, block: Block) -> None:
        """Forget a block."""
        del self.known[block.number]
        self.policy.remove(self.facts.pop(block.number))

    def _may_go(self, standing: Standing) -> Callable[[Facts], bool]:
        return lambda facts: all(standing(self.known[facts.key]))

    def victim(self, wanted: int, now_ns: int, standing: Standing) -> Block | None:
        """Let the policy evict one; what has lapsed, and was held until now, goes before all others."""
        if isinstance(self.policy, Ttl):  # its blocks leave one by one, as they may
            if (gone := self.lapsed(now_ns, standing)) is not None:
                return gone
        else:
            self.policy.expire(now_ns)
        found = self.policy.evict(self._may_go(standing))
        return None if found is None else self.known[found.key]

    def lapsed(self, now_ns: int, standing: Standing) -> Block | None:
        """Return the first that lapsed, the deepest first."""
        if not isinstance(self.policy, Ranked):
            return None
        policy, may_go = self.policy, self._may_go(standing)
        gone = [facts for facts in policy.by_key.values() if policy.lapsed(facts, now_ns) and may_go(facts)]
        if not gone:
            return None
        first = min(gone, key=lambda facts: (facts.last_access_ns, -facts.depth))
        return self.known[first.key]


class PluginOrder:
    """A plug-in as the order of a tier."""

    def __init__(self, host: HostedOrder) -> None:
        self.host = host
        self.known: dict[Hashable, Block] = {}
        self.answered: list[int] = []

    def join(self, block: Block, facts: Facts) -> None:
        """Tell of a block."""
        self.known[block.number] = block
        above = block.parent
        parent = above.number if above is not None and above.parent is not None else None
        self.host.join(block.number, facts.depth, parent, facts.created, facts.last_access_ns)

    def used(self, block: Block, access: int, now_ns: int) -> None:
        """Tell of a use."""
        self.host.used(block.number, access, now_ns)

    def leave(self, block: Block) -> None:
        """Tell that a block left."""
        del self.known[block.number]
        self.host.leave(block.number)

    def victim(self, wanted: int, now_ns: int, standing: Standing) -> Block | None:
        """Ask for victims; take them one by one."""
        if not self.answered:
            pinned = _Pinned(self.known, standing, self.host.leaves)
            self.answered = self.host.victims(wanted, now_ns, pinned)[::-1]
        return self.known[self.answered.pop()]

    def lapsed(self, now_ns: int, standing: Standing) -> Block | None:
        """Return None: a plug-in is asked when room is short."""
        return None


class _Pinned(Container[int]):
    def __init__(self, known: dict[Hashable, Block], standing: Standing, leaves: bool) -> None:
        self.known, self.standing, self.leaves = known, standing, leaves

    def __contains__(self, number: object) -> bool:
        block = self.known.get(number)
        if block is None:
            return True
        idle, leaf = self.standing(block)
        return not (idle and (leaf or not self.leaves))
