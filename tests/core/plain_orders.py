"""The small models of ``eviction_orders.py`` as the eviction orders of the plain store's tiers.

A block enters a tier's order when a request that held it there ends, or else when it may first leave; each later
end is a use of it. A block may leave when its copy is ready and unused, and no child has a copy on the tier.
"""

from collections.abc import Sequence

from eviction_orders import Ttl, make_order
from kvcache_sim.policies.resolve import parse_variant, resolve_policy
from kvcache_sim.spec.eviction import EvictionOrder
from marked_store import MarkedStore
from order_base import Block as Facts
from order_base import Order, Ranked
from support.product.spec import Block

_UNBOUNDED = 1 << 40


class PolicyOrder:
    """A model of a policy, called as the specification calls its ``EvictionOrder``."""

    def __init__(self, tier: int, policy: Order) -> None:
        self.tier = tier
        self.policy = policy
        self.facts: dict[Block, Facts] = {}
        self.block_of: dict[int, Block] = {}
        #: A block's number is the same whenever it comes back, by its path.
        self.numbers: dict[tuple[int, ...], int] = {}
        #: Blocks that the finishing request found, and blocks that it computed.
        self.found_and_computed: tuple[int, int] | None = None

    def offer(self, block: Block, clock: int, now_ns: int) -> None:
        """Enter a block that may leave but for its children."""
        if block not in self.facts:
            self._enter(block, clock, now_ns, (block.depth, 1))

    def on_release(self, block: Block, clock: int, now_ns: int) -> None:
        """Enter a block at the end of a request, or count a use of it."""
        facts = self.facts.get(block)
        if facts is None:
            self._enter(block, clock, now_ns, self.found_and_computed or (block.depth, 1))
            return
        facts.hits += 1
        facts.last_access, facts.last_access_ns = clock, now_ns
        self.policy.on_hit(facts)

    def _enter(self, block: Block, clock: int, now_ns: int, found_and_computed: tuple[int, int]) -> None:
        number = self.numbers[tuple(b.key for b in block.path())]
        self.block_of[number] = block
        access = block.copies[self.tier].last_access
        facts = Facts(number, block.depth, 1, access, clock, now_ns, *found_and_computed, number + 1)
        self.facts[block] = facts
        self.policy.on_miss(number)
        self.policy.insert(facts)

    def on_absent(self, block: Block) -> None:
        """Forget a block that has left the tier."""
        facts = self.facts.pop(block, None)
        if facts is not None:
            self.policy.remove(facts)

    def next_victim(self, now_ns: int) -> Block | None:
        """Return the block that the policy evicts; the least recent one where it names none.

        A policy is not asked while no block may leave: it would move blocks in its queues all the same.
        """
        if not any(map(self._may_go, self.facts.values())):
            return None
        if isinstance(self.policy, Ttl):  # a block that lapsed while it was in use goes first
            lapsed = self.next_lapsed(now_ns)
            if lapsed is not None:
                return lapsed
        else:
            self.policy.expire(now_ns)
        victim = self.policy.evict(self._may_go)
        if victim is not None:
            return self.block_of[victim.key]
        left = [block for block, facts in self.facts.items() if self._may_go(facts)]
        return min(left, key=lambda b: (b.copies[self.tier].last_access, -b.depth, b.key), default=None)

    def next_lapsed(self, now_ns: int) -> Block | None:
        """Return the next block that has outlived its time to live."""
        if not isinstance(self.policy, Ranked):
            return None
        policy = self.policy
        lapsed = [f for f in policy.by_key.values() if policy.lapsed(f, now_ns) and self._may_go(f)]
        first = min(lapsed, key=lambda f: (f.last_access_ns, -f.depth), default=None)
        return None if first is None else self.block_of[first.key]

    def _may_go(self, facts: Facts) -> bool:
        copy = self.block_of[facts.key].copies[self.tier]
        return copy.evictable and not copy.children


class PolicyStore(MarkedStore):
    """The plain store in every eviction order of the table."""

    #: Tokens a block, for policies with settings in tokens.
    block_size_tokens = 1

    def __init__(self, keys, capacities, write_back, policies, *rules) -> None:
        super().__init__(keys, capacities, write_back, None, *rules)
        self.numbers: dict[tuple[int, ...], int] = {}
        #: Leading blocks of each lease that were found rather than computed.
        self.found_blocks: dict[int, int] = {}
        self.eviction_orders = [
            self._order(n, text, capacities) for n, text in enumerate(policies or ())
        ] or self.eviction_orders

    def _order(self, tier: int, text: str, capacities: Sequence[int | None]) -> PolicyOrder | EvictionOrder:
        if text == "lru":
            return EvictionOrder(tier, text)
        _, variant = resolve_policy(text)
        blocks = capacities[tier]
        capacity = _UNBOUNDED if blocks is None else blocks
        order = PolicyOrder(tier, make_order(parse_variant(variant, self.block_size_tokens), capacity))
        order.numbers = self.numbers
        return order

    def _add_block(self, parent: Block, key: int, request: int) -> Block:
        block = super()._add_block(parent, key, request)
        self.numbers.setdefault(tuple(b.key for b in block.path()), len(self.numbers))
        return block

    def acquire(self, request: int, depth: int) -> int:
        lease: int = super().acquire(request, depth)
        self.found_blocks[lease] = depth
        return lease

    def load(self, lease: int, to: int, after: list[int]) -> int:
        move: int = super().load(lease, to, after)
        self.found_blocks[lease] = to
        return move

    def join(self, lease: int, to: int) -> None:
        super().join(lease, to)
        self.found_blocks[lease] = to

    def release(self, lease: int, now_ns: int) -> None:
        """End a lease; the orders learn what its request found and computed."""
        found, request = self.found_blocks[lease], self._lease(lease).request
        self._announce((found, max(int(self.keys.arrays[3][request]) - found, 0)))
        super().release(lease, now_ns)
        self._announce(None)

    def _announce(self, found_and_computed: tuple[int, int] | None) -> None:
        for order in self.eviction_orders:
            if isinstance(order, PolicyOrder):
                order.found_and_computed = found_and_computed
