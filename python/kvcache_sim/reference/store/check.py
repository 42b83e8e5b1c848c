"""The invariants of the reference store, recounted from its leases, moves and holds (I2, I3, I4, I7)."""

from __future__ import annotations

from collections.abc import Iterator

from kvcache_sim.reference.store.blocks import ABSENT, GPU, IN_FLIGHT, READY, Block
from kvcache_sim.reference.store.residency import Residency


def violations(store: Residency) -> Iterator[str]:
    """Yield each broken invariant in words. Cost: linear in blocks times holders."""
    blocks = _blocks(store)
    yield from _room(store, blocks)
    yield from _holders(store, blocks)
    yield from _places(store, blocks)


def _room(store: Residency, blocks: list[Block]) -> Iterator[str]:
    live = [lease for lease in store.leases.values() if lease.live]
    waiting = [lease for move in store.moves.values() for lease in move.waiting]
    active = sum(lease.reserved - lease.pending for lease in live)
    if active != store.tiers[GPU].active:
        yield f"I2: leases reserve {active} blocks, counted {store.tiers[GPU].active}"
    for lease in store.leases.values():
        pending = sum(waits is lease for waits in waiting)
        loading = sum(len(move.blocks) for move in store.moves.values() if move.lease is lease)
        if (pending, loading) != (lease.pending, lease.loading) or max(pending, loading) > lease.reserved:
            yield f"I2: a lease waits for {pending} blocks and loads {loading}, counted {lease}"
    for number, tier in enumerate(store.tiers):
        cached = [block.state[number] for block in blocks].count(READY)
        used = tier.free + tier.active + cached + tier.in_flight
        if used != tier.capacity or min(tier.free, tier.active, tier.in_flight) < 0:
            yield f"I2: tier {number} accounts for {used} of {tier.capacity} blocks"
        landing = sum(
            len(move.blocks) if move.claimed is None else move.claimed
            for move in store.moves.values()
            if move.to == number and move.lease is None
        )
        coming = sum(blocks for move, blocks in tier.coming if move in store.moves)
        in_flight = landing + coming + (len(waiting) if number == GPU else 0)
        if in_flight != tier.in_flight:
            yield f"I2: tier {number} has {in_flight} blocks in flight, counted {tier.in_flight}"


def _holders(store: Residency, blocks: list[Block]) -> Iterator[str]:
    paths = [(GPU, lease.tail) for lease in store.leases.values() if lease.live]
    paths += store.holds.values()
    for move in store.moves.values():
        paths += [(move.to, block) for block in move.held]
        paths += move.sources
    nobody = [0] * len(store.tiers)
    holders: dict[Block, list[int]] = {}
    for tier, tail in paths:
        for block in tail.path():
            holders.setdefault(block, nobody.copy())[tier] += 1
    for block in blocks:
        expected = holders.get(block, nobody)
        if block.holds != expected:
            yield f"I3: block {block.key} has {block.holds} holds, {expected} holders"


def _places(store: Residency, blocks: list[Block]) -> Iterator[str]:
    root = store.root
    for block in blocks:
        state, parent = block.state, block.parent
        if not any(block.holds) and block.gone():
            yield f"I4: block {block.key} has no copy and no holder"
        if state[GPU] != ABSENT and (parent is None or (parent is not root and parent.state[GPU] == ABSENT)):
            yield f"I4: block {block.key} is on the gpu, its parent is not"
        for tier, resident in enumerate(store.resident):
            at, times = state[tier], block.ready[tier]
            if (block in resident) != (at != ABSENT):
                yield f"I2: block {block.key} is wrongly counted on tier {tier}"
            if at == IN_FLIGHT:
                move = store.moves.get(block.by[tier])
                if move is None or move.to != tier or block not in move.blocks:
                    yield f"I7: block {block.key} is in flight to tier {tier} without a move"
                elif move.times is not None and move.times[1] < store.latest_ns:
                    yield f"I7: block {block.key} is late on tier {tier}: {move.times} at {store.latest_ns}"
            if (times is None) == (at == READY) or (times is not None and times[1] > store.latest_ns):
                yield f"I7: block {block.key} is in state {at} on tier {tier}, ready at {times}"


def _blocks(store: Residency) -> list[Block]:
    """Return all blocks of the tree, parents first."""
    found = list(store.root.children.values())
    for block in found:
        if block.children:
            found.extend(block.children.values())
    return found
