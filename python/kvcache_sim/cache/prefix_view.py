"""Prefixes shared between requests: the global prefix store of seed 000, 3.2 point 3 and 3.4."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import field
from heapq import heappop, heappush

from kvcache_sim.errors import UsageError
from kvcache_sim.units import NS_PER_S
from kvcache_sim.values import dataclass

#: A chained block id: it names the block's tokens and all before it, so it is the hash of the prefix.
PrefixHash = int


@dataclass(frozen=True, slots=True)
class PrefixViewSettings:
    """When a prefix may be shared, and how much the store holds.

    ``min_tokens`` is the shortest prefix admitted (None: one block), ``min_seen`` how often it must have
    been prefilled, ``max_tokens`` the size limit (None: only the tier's).
    """

    min_tokens: int | None = None
    min_seen: int = 1
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("min_tokens", "min_seen", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError("out of range", where=f"prefix_view.{name}", got=str(value), expected="≥ 1")


class PrefixAdmission:
    """Decides how far a prefix may be shared: long enough, and seen often enough.

    Every prompt counts once for each of its prefixes, at its first admission and after its own look-up.
    """

    def __init__(self, settings: PrefixViewSettings, block_size_tokens: int) -> None:
        self._min_blocks = -(-(settings.min_tokens or 1) // block_size_tokens)
        self._min_seen = settings.min_seen
        #: The size limit of the store.
        self.max_tokens = settings.max_tokens
        self._seen: Counter[PrefixHash] = Counter()

    @property
    def shortest_blocks(self) -> int:
        """The shortest prefix that can be admitted, in blocks."""
        return self._min_blocks

    def observe(self, prefixes: Sequence[PrefixHash]) -> None:
        """Count a prompt's prefixes; ``prefixes[k]`` is the hash of the first k + 1 blocks."""
        if self._min_seen > 1:
            self._seen.update(prefixes)

    def admitted(self, prefix: PrefixHash) -> bool:
        """Return whether a prefix was seen often enough to enter the store."""
        return self._min_seen == 1 or self._seen[prefix] >= self._min_seen

    def admitted_blocks(self, prefixes: Sequence[PrefixHash]) -> int:
        """Return the longest admitted prefix, in blocks; 0 where none is."""
        blocks = len(prefixes)
        if self._min_seen > 1:
            # A prefix is seen at least as often as any longer one, so the admitted ones lead.
            blocks = next((k for k, p in enumerate(prefixes) if not self.admitted(p)), blocks)
        return blocks if blocks >= self._min_blocks else 0


@dataclass(slots=True)
class GlobalPrefixCacheInfo:
    """One shared prefix; the fields are seed 000's, with the links that keep its blocks in order."""

    length: int
    prefix_hash: PrefixHash
    parent: GlobalPrefixCacheInfo | None
    reference_count: int = 0
    last_access_ns: int = 0
    #: Order of the last access: one access a release, so equal times do not tie.
    access: int = 0
    #: Entries one block longer.
    longer: int = 0

    @property
    def kv_block_ids(self) -> list[PrefixHash]:
        """The ids of the prefix's blocks, first to last."""
        chain: list[PrefixHash] = []
        entry: GlobalPrefixCacheInfo | None = self
        while entry is not None:
            chain.append(entry.prefix_hash)
            entry = entry.parent
        return chain[::-1]

    @property
    def last_access_time(self) -> float:
        """Simulation time of the last access in seconds."""
        return self.last_access_ns / NS_PER_S


@dataclass(slots=True)
class GlobalPrefixStore:
    """The prefixes themselves under simplified accounting: one entry for each whole-block prefix.

    An entry with users (``reference_count``) or with a longer entry stays. Without them it is evictable,
    not gone: it leaves when room is needed, the least recently used first and of one access the longest
    first. Cost: a dictionary probe a candidate, a heap operation a release.
    """

    block_size_tokens: int
    global_prefix_store: dict[PrefixHash, GlobalPrefixCacheInfo] = field(default_factory=dict)
    _evictable: list[tuple[int, int, PrefixHash]] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Tokens of all prefixes, shared ones counted once."""
        return len(self.global_prefix_store) * self.block_size_tokens

    def holds(self, prefix_hash: PrefixHash) -> bool:
        """Return whether a prefix is in the store."""
        return prefix_hash in self.global_prefix_store

    def get(self, prefix_hash: PrefixHash) -> GlobalPrefixCacheInfo | None:
        """Return a prefix's entry."""
        return self.global_prefix_store.get(prefix_hash)

    def longest(self, prefixes: Sequence[PrefixHash], shortest_blocks: int) -> int:
        """Return the longest prefix held, in blocks, trying the longest candidate first; 0 without one."""
        for blocks in range(len(prefixes), max(shortest_blocks, 1) - 1, -1):
            if prefixes[blocks - 1] in self.global_prefix_store:
                return blocks
        return 0

    def add(self, prefix_hash: PrefixHash, parent: PrefixHash | None) -> bool:
        """Enter a prefix one block longer than its parent's; False where it is there already."""
        if prefix_hash in self.global_prefix_store:
            return False
        shorter = None if parent is None else self.global_prefix_store[parent]
        length = self.block_size_tokens
        if shorter is not None:
            shorter.longer += 1
            length += shorter.length
        self.global_prefix_store[prefix_hash] = GlobalPrefixCacheInfo(length, prefix_hash, shorter)
        return True

    def acquire(self, prefix_hash: PrefixHash) -> None:
        """Count a user of the prefix, and so of every shorter one."""
        self.global_prefix_store[prefix_hash].reference_count += 1

    def touch(self, prefix_hash: PrefixHash, access: int, now_ns: int) -> None:
        """Note an access on the prefix and on every shorter one."""
        entry: GlobalPrefixCacheInfo | None = self.global_prefix_store[prefix_hash]
        while entry is not None:
            entry.access, entry.last_access_ns = access, now_ns
            entry = entry.parent

    def release(self, prefix_hash: PrefixHash) -> None:
        """Count a user less; without users the prefix becomes evictable, not gone."""
        entry = self.global_prefix_store[prefix_hash]
        entry.reference_count -= 1
        self._offer(entry)

    def oldest_unused(self) -> GlobalPrefixCacheInfo | None:
        """Return the entry to evict next; None where all are in use."""
        while self._evictable:
            access, _, prefix_hash = self._evictable[0]
            entry = self.global_prefix_store.get(prefix_hash)
            if entry is not None and _unused(entry) and entry.access == access:
                return entry
            heappop(self._evictable)  # gone, in use again, or accessed since: offered anew then
        return None

    def evict(self, entry: GlobalPrefixCacheInfo) -> None:
        """Drop an unused entry; the one a block shorter may become evictable."""
        del self.global_prefix_store[entry.prefix_hash]
        if entry.parent is not None:
            entry.parent.longer -= 1
            self._offer(entry.parent)

    def _offer(self, entry: GlobalPrefixCacheInfo) -> None:
        if _unused(entry):
            heappush(self._evictable, (entry.access, -entry.length, entry.prefix_hash))


def _unused(entry: GlobalPrefixCacheInfo) -> bool:
    return entry.reference_count == 0 and entry.longer == 0
