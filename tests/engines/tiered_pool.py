"""A small model of vLLM's pool with an engine's tiers below it and copies in flight, block by block.

It shares no code with the core. Requests stand for their leases; what the stores of the core answer is
compared with what ``PoolModel`` (no tier), ``OffloadModel`` (vLLM's CPU offloading) and
``lmcache_pool.LmcacheModel`` answer. Moves are numbered from 1 in the order in which they start.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, takewhile

from kvcache_sim.workload.key_arrays import KeyArrays
from tier_orders import REFUSED, REUSED, STORED, Arc, Lru

GPU, CPU, DISK = 0, 1, 2
#: Names a request's block.
Namer = Callable[[int, int], object]
#: No move: a block is there.
READY = 0


@dataclass(eq=False)
class Block:
    """A block of the pool: its key, how many requests hold it, the copies that read it, the one that writes
    it."""

    key: object = None
    holders: int = 0
    readers: set[int] = field(default_factory=set)
    writer: int = READY


@dataclass
class Copy:
    """A copy in flight; ``blocks`` are those of the pool."""

    keys: list[object]
    blocks: list[Block]
    source: int
    target: int


def namer(keyed: KeyArrays) -> Namer:
    """Return the names of the blocks of ``_core.Keys`` made of the same: an id and a position, or the
    request's own."""
    per_id = keyed[2]
    offsets, ids, full, following = (keyed[column].tolist() for column in (0, 1, 3, 4))

    def name(request: int, block: int) -> object:
        for source in (request, following[request]):
            if source < len(full) and block < full[source]:
                return ids[offsets[source] + block // per_id], block % per_id
        return "own", request, block

    return name


class PoolModel:
    """A pool alone. ``key`` names a request's block, ``prompts`` has the tokens of each."""

    tiers = 1

    def __init__(self, key: Namer, capacity: int, prompts: Sequence[int], size: int) -> None:
        self.key, self.capacity, self.prompts, self.size = key, capacity, prompts, size
        self.free = [Block() for _ in range(capacity)]
        #: Blocks of a key; the first that got it answers.
        self.of_key: dict[object, list[Block]] = {}
        self.held: dict[int, list[Block]] = {}
        #: Leading blocks of a running request that have been offered their keys.
        self.depth: dict[int, int] = {}
        self.evicted: Counter[int] = Counter()
        #: Blocks that got a key.
        self.inserted = 0

    def names(self, request: int, start: int, end: int) -> list[object]:
        """Return the keys of some blocks of a request."""
        return [self.key(request, block) for block in range(start, end)]

    # -- what is there

    def in_pool(self, request: int, limit: int) -> int:
        """Return the number of leading blocks that the pool has, or gets by a copy in flight."""
        return sum(1 for _ in takewhile(self.of_key.__contains__, self.names(request, 0, limit)))

    def writer(self, key: object) -> int:
        """Return the move that writes the block of a key."""
        return self.of_key[key][0].writer

    def peek(self, request: int, limit: int) -> tuple[int, int]:
        """Return how many leading blocks are found, and are ready in the pool."""
        names = self.names(request, 0, self.in_pool(request, limit))
        return len(names), sum(1 for _ in takewhile(lambda key: self.writer(key) == READY, names))

    # -- requests

    def reserve(self, request: int, hits: int, blocks: int) -> set[int] | None:
        """Hold the blocks found and take others; return the copies that still read them, or None if too
        few are free."""
        found = [self.of_key[key][0] for key in self.names(request, 0, hits)]
        if blocks + sum(not block.holders for block in found) > len(self.free):
            return None
        for block in found:
            if not block.holders:
                self.free.remove(block)
            block.holders += 1
        self.held[request], self.depth[request] = found, hits
        return self.grow(request, blocks)

    def grow(self, request: int, blocks: int) -> set[int] | None:
        """Take more blocks, or change nothing."""
        if blocks > len(self.free):
            return None
        taken, self.free = self.free[:blocks], self.free[blocks:]
        for block in taken:
            block.holders = 1
            if block.key is not None:
                self.of_key[block.key].remove(block)
                if not self.of_key[block.key]:
                    del self.of_key[block.key]
                block.key, self.evicted[GPU] = None, self.evicted[GPU] + 1
        self.held[request] += taken
        return set().union(*(block.readers for block in taken))

    def commit(self, request: int, to: int) -> None:
        """Give leading blocks their keys, where they have none."""
        for block, key in zip(self.held[request], self.names(request, 0, to), strict=False):
            if block.key is None:
                block.key = key
                self.of_key.setdefault(key, []).append(block)
                self.inserted += 1
        self.depth[request] = max(self.depth[request], to)

    def release(self, request: int) -> None:
        """Release blocks, the last first: blocks without a key are the next to be taken."""
        front, back = list[Block](), list[Block]()
        for block in reversed(self.held.pop(request)):
            block.holders -= 1
            if not block.holders:
                (front if block.key is None else back).append(block)
        self.free = front + self.free + back
        del self.depth[request]

    def evicted_from(self, tier: int) -> int:
        """Return how many blocks a tier has evicted."""
        return self.evicted[tier]

    def occupancy(self, tier: int) -> tuple[int, int, int, int, int]:
        """Return blocks that are free, held, kept, being written, and held alone."""
        kept = sum(block.key is not None for block in self.free)
        arriving = sum(block.writer != READY for own in self.of_key.values() for block in own)
        held = self.capacity - len(self.free) - arriving
        return len(self.free) - kept, held, kept, arriving, held


class OffloadModel(PoolModel):
    """vLLM's CPU offloading below: blocks behind the pool's hit are loaded, computed blocks are offered.

    A key stays in the tier while a copy uses it. A block released while it is still read is allocated again,
    and its new request waits.
    """

    tiers = 2
    #: Blocks that the tiers take together.
    chunk = 1

    def __init__(
        self,
        key: Namer,
        capacities: Sequence[int],
        policy: str,
        prompts: Sequence[int],
        size: int,
    ) -> None:
        super().__init__(key, capacities[GPU], prompts, size)
        self.tier: Lru | Arc = {"lru": Lru, "arc": Arc}[policy](capacities[CPU])
        self.moves: dict[int, Copy] = {}
        self.begun, self.orders = 0, list[tuple[int, int, int, int, set[int]]]()
        #: Copies and holds that use a key of the CPU's, and the copy that writes it.
        self.in_use: Counter[object] = Counter()
        self.writing: dict[object, int] = {}
        self.to_offer: dict[int, int] = {}
        self.used: dict[int, dict[int, tuple[object, str]]] = {}

    # -- what is there

    def asked(self, request: int, limit: int) -> int:
        """Return the blocks of a look-up without the block of the last token."""
        return limit - (limit * self.size == self.prompts[request])

    def askable(self, request: int, limit: int) -> int:
        """Return how many leading blocks the tiers may bring: a full last one too."""
        tokens = self.prompts[request]
        return tokens // self.size if (tokens - 1) // self.size == limit else limit

    def peek(self, request: int, limit: int) -> tuple[int, int]:
        """Return how many leading blocks are found in the pool and the tier, and are ready in the pool."""
        found, ready = super().peek(request, limit)
        names = self.names(request, found, self.askable(request, limit))
        return found + sum(1 for _ in takewhile(self.tier.__contains__, names)), ready

    def parts(self, request: int, limit: int) -> list[tuple[int, int, int, int]]:
        """Return the found run as (tier, first block, past the last, move that writes it)."""
        names = self.names(request, 0, limit)
        found = self.in_pool(request, self.asked(request, limit))
        if found == self.asked(request, limit) < limit and names[found] not in self.tier:
            found = self.in_pool(request, limit)
        below = takewhile(self.tier.__contains__, names[found:])
        positions = [(GPU, self.writer(key)) for key in names[:found]]
        return runs([*positions, *((CPU, self.writing.get(key, READY)) for key in below)])

    # -- requests

    def protect(self, request: int, end: int) -> list[object]:
        """Keep what the tier has of leading blocks; return it for ``unprotect``."""
        held = [key for key in self.names(request, 0, end) if key in self.tier]
        self.in_use.update(held)
        return held

    def unprotect(self, held: Iterable[object]) -> None:
        """End a ``protect``, or the use by a copy."""
        self.in_use -= Counter(held)

    def reserve(self, request: int, hits: int, blocks: int) -> set[int] | None:
        waits = super().reserve(request, hits, blocks)
        if waits is not None:
            self.to_offer[request] = 0
        return waits

    def join(self, request: int, to: int) -> None:
        """Hold blocks that another request is loading."""
        depth = self.depth[request]
        blocks = [self.of_key[key][0] for key in self.names(request, depth, to)]
        for block in blocks:
            block.holders += 1
        self.held[request][depth:depth] = blocks
        self.depth[request] = to

    def load(self, request: int, to: int, after: set[int]) -> int:
        """Read a request's next blocks from the tier; return the move."""
        depth = self.depth[request]
        names = self.names(request, depth, to)
        used = self.used.setdefault(request, {})
        used |= {depth + k: (key, REUSED) for k, key in enumerate(names)}
        self.tier.use([used[index][0] for index in sorted(used)])
        move = self._read(request, names, after)
        self.to_offer[request] = to
        return move

    def _read(self, request: int, names: list[object], after: set[int]) -> int:
        depth = self.depth[request]
        blocks = self.held[request][depth : depth + len(names)]
        move = self._begin(Copy(names, blocks, CPU, GPU), after)
        for block in blocks:
            block.writer = move
        self.commit(request, depth + len(names))
        return move

    def _begin(self, copy: Copy, after: set[int]) -> int:
        self.begun += 1
        self.moves[self.begun] = copy
        self.in_use.update(copy.keys)
        self.orders.append((self.begun, copy.source, copy.target, len(copy.keys), set(after)))
        return self.begun

    def finish(self, move: int) -> None:
        """Finish a copy: written blocks are ready, read blocks may be evicted."""
        copy = self.moves.pop(move)
        self.unprotect(copy.keys)
        for block in copy.blocks:
            block.readers.discard(move)
            if copy.target == GPU:
                block.writer = READY
        self.writing = {key: by for key, by in self.writing.items() if by != move}

    def step_computed(self, requests: Sequence[int]) -> None:
        """Offer the blocks of prompts that a step has computed; refused blocks are offered again after the
        next step."""
        for request in [one for one in requests if one in self.to_offer]:
            start, chunk = self.to_offer[request], self.size * self.chunk
            whole = self.prompts[request] // chunk * self.chunk
            end = min(self.depth[request], whole) // self.chunk * self.chunk
            if end > start and self.offer(request, start, end):
                self.to_offer[request] = end
            if self.to_offer[request] == whole:
                del self.to_offer[request]

    def offer(self, request: int, start: int, end: int) -> bool:
        """Store missing blocks and send them down; return False if the tier refuses them."""
        names = self.names(request, start, end)
        self.tier.offer(names)
        new = [key for key in names if key not in self.tier]
        victims = self.tier.store(new, {*names, *+self.in_use})
        used = self.used.setdefault(request, {})
        for index, key in enumerate(names, start):
            if used.get(index, (key, REFUSED))[1] == REFUSED:
                is_new = STORED if victims is not None else REFUSED
                used[index] = key, is_new if key in new else REUSED
        self.tier.use([used[index][0] for index in sorted(used)])
        if victims is None:
            return False
        self.evicted[CPU] += len(victims)
        if new:
            held = self.held[request][start:end]
            self._write(new, [block for block, key in zip(held, names, strict=True) if key in new], new)
        return True

    def _write(self, keys: list[object], blocks: list[Block], new: Sequence[object]) -> int:
        move = self._begin(Copy(keys, blocks, GPU, CPU), set())
        self.writing |= dict.fromkeys(new, move)
        for block in blocks:
            block.readers.add(move)
        return move

    def release(self, request: int) -> None:
        super().release(request)
        self.to_offer.pop(request, None)
        used = self.used.pop(request, {})
        self.tier.finish([used[index] for index in sorted(used)])

    # -- counts

    def occupancy(self, tier: int) -> tuple[int, int, int, int, int]:
        if tier == GPU:
            return super().occupancy(tier)
        there, used, writing = len(self.tier), len(+self.in_use), len(self.writing)
        return self.tier.capacity - there, used - writing, there - used, writing, 0

    def duplicates(self, tier: int) -> int:
        """Return how many blocks of a tier a faster one has too."""
        return sum(key in self.tier for key in self.of_key)


def runs(positions: Iterable[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
    """Return a prompt's blocks, each (tier, move that writes it), as (tier, first, past the last, move)."""
    parts, start = list[tuple[int, int, int, int]](), 0
    for (tier, move), run in groupby(positions):
        end = start + len(list(run))
        parts.append((tier, start, end, move))
        start = end
    return parts
