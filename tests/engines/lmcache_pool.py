"""A small model of LMCache's CPU and disk tiers below vLLM's pool (LMCache 0.5.6); a chunk is some blocks."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile

from tier_orders import Chunks
from tiered_pool import CPU, DISK, GPU, READY, Copy, Namer, OffloadModel, PoolModel, runs


class LmcacheModel(OffloadModel):
    """LMCache's CPU and disk below: a look-up from the first chunk on over the CPU, then over the disk.

    Chunks loaded from the disk stay on the CPU. Chunks computed behind the look-up are stored while the CPU
    has capacity, and are then written to the disk.
    """

    def __init__(
        self,
        key: Namer,
        capacities: Sequence[int],
        policy: str,
        prompts: Sequence[int],
        size: int,
        chunk: int = 1,
    ) -> None:
        super().__init__(key, capacities, "lru", prompts, size)
        self.chunk, self.capacities = chunk, capacities
        cpu, disk = capacities[CPU] // chunk, capacities[DISK] // chunk
        self.tier, self.disk = Chunks(policy, cpu), Chunks(policy, disk)  # type: ignore[assignment]
        self.tiers = 3 if capacities[DISK] else 2
        #: Copies that use a chunk of the disk's, and the one that writes it; what each request's look-up
        #: found.
        self.disk_in_use: Counter[object] = Counter()
        self.writing_disk: dict[object, int] = {}
        self.looked_up: dict[int, tuple[int, int]] = {}

    def chunks(self, request: int, start: int, end: int) -> list[object]:
        """Return the names of chunks of a prompt: those of their blocks."""
        blocks = [(k * self.chunk, (k + 1) * self.chunk) for k in range(start, end)]
        return [tuple(self.names(request, *of)) for of in blocks]

    def of_blocks(self, request: int, start: int, end: int) -> list[object]:
        """Return for each block the name of its chunk."""
        return [self.chunks(request, k // self.chunk, k // self.chunk + 1)[0] for k in range(start, end)]

    def each_block(self, names: Iterable[object]) -> list[object]:
        """Return chunks, each once for every block."""
        return [name for name in names for _ in range(self.chunk)]

    def look_up(self, request: int) -> tuple[int, int]:
        """Return the leading chunks on the CPU, and with those behind them on disk for which it has
        memory."""
        names = self.chunks(request, 0, self.prompts[request] // self.size // self.chunk)
        on_cpu = sum(1 for _ in takewhile(self.tier.__contains__, names))
        on_disk = sum(1 for _ in takewhile(self.disk.__contains__, names[on_cpu:]))
        return on_cpu, on_cpu + min(on_disk, self.tier.capacity - len({*names[:on_cpu], *+self.in_use}))

    def peek(self, request: int, limit: int) -> tuple[int, int]:
        found, ready = PoolModel.peek(self, request, limit)
        return max(found, min(self.look_up(request)[1] * self.chunk, self.askable(request, limit))), ready

    def parts(self, request: int, limit: int) -> list[tuple[int, int, int, int]]:
        names = self.names(request, 0, limit)
        on_cpu, below = (chunks * self.chunk for chunks in self.look_up(request))
        found = self.in_pool(request, self.asked(request, limit))
        if found == self.asked(request, limit) < limit and below <= found:
            found = self.in_pool(request, limit)
        positions = [(GPU, self.writer(key)) for key in names[:found]]
        above, start = self.of_blocks(request, found, min(on_cpu, limit)), max(found, on_cpu)
        positions += [(CPU, self.writing.get(key, READY)) for key in above]
        on_disk = self.of_blocks(request, start, min(below, limit))
        positions += [(DISK, self.writing_disk.get(key, READY)) for key in on_disk]
        return runs(positions)

    def protect(self, request: int, end: int) -> list[object]:
        """Keep nothing: look-up and loads of a request are one moment."""
        return []

    def reserve(self, request: int, hits: int, blocks: int) -> set[int] | None:
        waits = super().reserve(request, hits, blocks)
        if waits is not None:
            on_cpu, below = self.looked_up[request] = self.look_up(request)
            for tier, start, end in ((self.tier, 0, on_cpu), (self.disk, on_cpu, below)):
                for key in reversed(self.chunks(request, start, end)):
                    tier.hit(key)  # type: ignore[union-attr]
            self.to_offer[request] = below * self.chunk
        return waits

    def load(self, request: int, to: int, after: set[int]) -> int:
        depth, (on_cpu, _) = self.depth[request], self.looked_up[request]
        if depth // self.chunk >= on_cpu:
            names = self.chunks(request, depth // self.chunk, -(-to // self.chunk))
            assert self._take(len(names), self.chunks(request, 0, on_cpu)) == len(names)
            for key in names:
                self.disk.hit(key)
            new = self._put(names)
            self.disk_in_use.update(self.each_block(names))
            up = self._begin(Copy(self.each_block(names), [], DISK, CPU), after)
            self.writing |= dict.fromkeys(new, up)
            after = {*after, up}
        return self._read(request, self.of_blocks(request, depth, to), after)

    def _take(self, chunks: int, kept: Iterable[object]) -> int:
        """Evict from the CPU; return the number of chunks that fit."""
        for taken in range(chunks):
            is_full = len(self.tier) + taken == self.tier.capacity
            if is_full and not self.tier.evict({*kept, *+self.in_use}):  # type: ignore[union-attr]
                return taken
        return chunks

    def _put(self, names: Iterable[object]) -> list[object]:
        new = [key for key in names if key not in self.tier]
        for key in new:
            self.tier.put(key)  # type: ignore[union-attr]
        return new

    def offer(self, request: int, start: int, end: int) -> bool:
        names = self.chunks(request, start // self.chunk, end // self.chunk)
        names = names[: self._take(len(names), ())]
        new = self._put(names)
        if not names:
            return True
        sent = self.each_block(names)
        down = self._write(sent, self.held[request][start : start + len(sent)], new)
        to_disk = [key for key in names if self.disk.capacity and self._store_on_disk(key)]
        if to_disk:
            self.disk_in_use.update(self.each_block(to_disk))
            move = self._begin(Copy(self.each_block(to_disk), [], CPU, DISK), {down})
            self.writing_disk |= dict.fromkeys(to_disk, move)
        return True

    def _store_on_disk(self, key: object) -> bool:
        """Store a chunk on disk; False where it is there, or where nothing may go for it."""
        if key in self.disk:
            self.disk.hit(key)
            return False
        if len(self.disk) == self.disk.capacity and not self.disk.evict(+self.disk_in_use):
            return False
        self.disk.put(key)
        return True

    def finish(self, move: int) -> None:
        copy = self.moves[move]
        super().finish(move)
        if DISK in (copy.source, copy.target):
            self.disk_in_use -= Counter(copy.keys)
        self.writing_disk = {key: by for key, by in self.writing_disk.items() if by != move}

    def release(self, request: int) -> None:
        del self.looked_up[request]
        PoolModel.release(self, request)
        self.to_offer.pop(request, None)

    def evicted_from(self, tier: int) -> int:
        if tier == GPU:
            return super().evicted_from(tier)
        return (self.tier, self.disk)[tier - CPU].evicted * self.chunk  # type: ignore[union-attr]

    def occupancy(self, tier: int) -> tuple[int, int, int, int, int]:
        if tier == GPU:
            return super().occupancy(tier)
        there, used, writing = len(self.tier), len(+self.in_use), len(self.writing)
        if tier == DISK:
            there = len(self.disk)
            # a chunk may leave for others of its own store, before it is written
            writing = sum(key in self.disk for key in self.writing_disk)
            used = sum(key in self.disk for key in +self.disk_in_use)
        free = self.capacities[tier] - there * self.chunk
        return free, *(n * self.chunk for n in (used - writing, there - used, writing)), 0  # type: ignore[return-value]

    def duplicates(self, tier: int) -> int:
        kept = self.tier.hits if tier == CPU else self.disk.hits  # type: ignore[union-attr]
        above = () if tier == CPU else self.tier
        alone = (key for key in kept if key not in above)  # type: ignore[operator]
        in_pool = (sum(block in self.of_key for block in key) for key in alone)  # type: ignore[attr-defined]
        return sum(in_pool) + sum(key in above for key in kept) * self.chunk  # type: ignore[operator]
