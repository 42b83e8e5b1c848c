"""Eviction plug-ins over the plain store, block by block: the calls that the core makes, in the same order."""

from collections.abc import Container

from kvcache_sim.base.tiers import TIERS
from kvcache_sim.policies.plugins.hosted import HostedOrder
from kvcache_sim.policies.plugins.views import TierView
from kvcache_sim.policies.plugins.watchdog import Watchdog
from kvcache_sim.policies.tier_orders import choose_eviction
from kvcache_sim.spec.blocks import Block
from plain_orders import PolicyStore


class PluginOrder:
    """A plug-in, called as the specification calls its ``EvictionOrder``."""

    def __init__(self, tier: int, host: HostedOrder, numbers: dict[tuple[int, ...], int]) -> None:
        self.tier = tier
        self.host = host
        self.numbers = numbers
        self.known: dict[int, Block] = {}
        #: Blocks still to leave in the current eviction, and the victims named for it, the last one first.
        self.wanted = 0
        self.named: list[int] = []

    def _number(self, block: Block) -> int:
        return self.numbers[tuple(b.key for b in block.path())]

    def offer(self, block: Block, clock: int, now_ns: int) -> None:
        """Report a block that may leave but for its children, unless it is known."""
        number = self._number(block)
        if number not in self.known:
            above = block.parent
            parent = None if above is None or above.parent is None else self._number(above)
            self.known[number] = block
            self.host.join(number, block.depth, parent, clock, now_ns)

    def on_release(self, block: Block, clock: int, now_ns: int) -> None:
        """Report a block at the end of a request, or a use of it."""
        if self._number(block) in self.known:
            self.host.used(self._number(block), clock, now_ns)
        else:
            self.offer(block, clock, now_ns)

    def on_absent(self, block: Block) -> None:
        """Report a block that has left the tier."""
        number = self._number(block)
        if self.known.pop(number, None) is not None:
            self.host.leave(number)

    def next_victim(self, now_ns: int) -> Block | None:
        """Return the next of the victims that the plug-in names at once."""
        if not self.named:
            self.named = self.host.victims(self.wanted, now_ns, Pinned(self))[::-1]
        self.wanted -= 1
        return self.known[self.named.pop()]

    def next_lapsed(self, now_ns: int) -> None:
        """Return None: a plug-in is asked where space is short."""


class Pinned(Container[int]):
    """The blocks that a plug-in may not name."""

    def __init__(self, order: PluginOrder) -> None:
        self.order = order

    def __contains__(self, number: object) -> bool:
        block = self.order.known.get(number) if isinstance(number, int) else None
        if block is None:
            return True
        copy = block.copies[self.order.tier]
        return not copy.evictable or (self.order.host.leaves and copy.children > 0)


class PluginStore(PolicyStore):
    """The plain store in every eviction order of the table and in those of plug-ins."""

    def _order(self, tier, text, capacities):
        choice = choose_eviction(text, self.block_size_tokens)
        if choice is None or choice.plugin is None:
            return super()._order(tier, text, capacities)
        (plugin, maker), blocks = choice.plugin, capacities[tier]
        assert blocks is not None
        dog = Watchdog(watches=False)
        policy = maker(TierView(TIERS[tier], blocks, self.block_size_tokens))
        one_by_one = 0 < tier == len(capacities) - 1
        return PluginOrder(tier, HostedOrder(policy, plugin.name, blocks, dog, one_by_one), self.numbers)

    def _evict(self, tier: int, shortfall: int, now_ns: int) -> int:
        order = self.eviction_orders[tier]
        if isinstance(order, PluginOrder):
            order.wanted = min(max(shortfall, self.eviction_batch_blocks), self.tiers[tier].evictable)
        evicted: int = super()._evict(tier, shortfall, now_ns)
        return evicted
