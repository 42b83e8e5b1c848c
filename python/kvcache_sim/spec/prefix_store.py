"""Prefixes shared between requests: ``global_prefix_store`` (seed 000, 3.2 point 3 and 3.4).

A prefix may be shared when it is long enough and was prefilled often enough: every prompt counts once for
each of its whole-block prefixes, at its first admission and after its own lookup. Under simplified
accounting the store has an entry for each shared prefix, and a search tries the longest candidate first. An
entry's reference count is the number of its users. At zero, and without a longer entry, it is evictable, not
gone: it is evicted for space or for the size limit, least recently used first, of equals the longest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from kvcache_sim.units import NS_PER_S

#: A block's key names its tokens and all before them, so it is the hash of the prefix.
PrefixHash = int


class PrefixCriteria:
    """Decides which prefixes may be shared: by length in blocks, and by number of prefills."""

    def __init__(self, min_blocks: int, min_seen: int) -> None:
        self.min_blocks, self._min_seen = min_blocks, min_seen
        self._seen: Counter[PrefixHash] = Counter()

    def observe(self, prefixes: Sequence[PrefixHash]) -> None:
        """Count a prompt's prefixes; ``prefixes[k]`` is the hash of its first k + 1 blocks."""
        if self._min_seen > 1:
            self._seen.update(prefixes)

    def admits(self, prefix: PrefixHash) -> bool:
        """Return True if a prefix was seen often enough."""
        return self._min_seen == 1 or self._seen[prefix] >= self._min_seen

    def admitted_blocks(self, prefixes: Sequence[PrefixHash]) -> int:
        """Return the blocks of the longest admitted prefix; 0 without one."""
        # a prefix is seen at least as often as any longer one, so the admitted ones lead
        blocks = next((k for k, prefix in enumerate(prefixes) if not self.admits(prefix)), len(prefixes))
        return blocks if blocks >= self.min_blocks else 0


@dataclass(slots=True)
class GlobalPrefixCacheInfo:
    """One shared prefix; the fields are seed 000's, with the links that keep its blocks in order."""

    length: int
    prefix_hash: PrefixHash
    parent: GlobalPrefixCacheInfo | None
    reference_count: int = 0
    last_access_ns: int = 0
    #: Counter of releases, which breaks ties of equal times.
    access: int = 0
    #: Entries one block longer.
    longer: int = 0

    def chain(self) -> Iterator[GlobalPrefixCacheInfo]:
        """Yield the prefix and all shorter ones."""
        entry: GlobalPrefixCacheInfo | None = self
        while entry is not None:
            yield entry
            entry = entry.parent

    @property
    def kv_block_ids(self) -> list[PrefixHash]:
        """The ids of the prefix's blocks, first to last."""
        return [entry.prefix_hash for entry in self.chain()][::-1]

    @property
    def last_access_time(self) -> float:
        """Time of the last access in seconds."""
        return self.last_access_ns / NS_PER_S

    @property
    def is_unused(self) -> bool:
        """True if it may be evicted."""
        return not self.reference_count and not self.longer


class GlobalPrefixStore:
    """The shared prefixes of one machine. Cost: one probe per candidate, one heap operation per release."""

    def __init__(self, block_size_tokens: int) -> None:
        self.block_size_tokens = block_size_tokens
        self.global_prefix_store: dict[PrefixHash, GlobalPrefixCacheInfo] = {}
        self._evictable: list[tuple[int, int, PrefixHash]] = []

    @property
    def tokens(self) -> int:
        """Tokens of all prefixes, shared tokens counted once."""
        return len(self.global_prefix_store) * self.block_size_tokens

    def longest(self, prefixes: Sequence[PrefixHash], shortest_blocks: int = 1) -> int:
        """Return the blocks of the longest prefix held; 0 without one."""
        for blocks in range(len(prefixes), max(shortest_blocks, 1) - 1, -1):
            if prefixes[blocks - 1] in self.global_prefix_store:
                return blocks
        return 0

    def add(self, prefix_hash: PrefixHash, parent: PrefixHash | None) -> None:
        """Add a prefix one block longer than its parent."""
        shorter = None if parent is None else self.global_prefix_store[parent]
        length = self.block_size_tokens
        if shorter is not None:
            shorter.longer += 1
            length += shorter.length
        self.global_prefix_store[prefix_hash] = GlobalPrefixCacheInfo(length, prefix_hash, shorter)

    def acquire(self, prefix_hash: PrefixHash) -> None:
        """Count a user of the prefix, and so of every shorter one."""
        self.global_prefix_store[prefix_hash].reference_count += 1

    def release(self, prefix_hash: PrefixHash) -> None:
        """Remove a user; without users the prefix becomes evictable."""
        entry = self.global_prefix_store[prefix_hash]
        entry.reference_count -= 1
        self._offer(entry)

    def touch(self, prefix_hash: PrefixHash, access: int, now_ns: int) -> None:
        """Record an access (counter and time in ns) on the prefix and on every shorter one."""
        for entry in self.global_prefix_store[prefix_hash].chain():
            entry.access, entry.last_access_ns = access, now_ns

    def oldest_unused(self) -> GlobalPrefixCacheInfo | None:
        """Return the entry to evict next; None if all are in use."""
        while self._evictable:
            access, _, prefix_hash = self._evictable[0]
            entry = self.global_prefix_store.get(prefix_hash)
            if entry is not None and entry.is_unused and entry.access == access:
                return entry
            heappop(self._evictable)  # evicted, in use again, or accessed since: it is offered again then
        return None

    def evict(self, entry: GlobalPrefixCacheInfo) -> None:
        """Drop an unused entry; its parent may become evictable."""
        del self.global_prefix_store[entry.prefix_hash]
        if entry.parent is not None:
            entry.parent.longer -= 1
            self._offer(entry.parent)

    def _offer(self, entry: GlobalPrefixCacheInfo) -> None:
        if entry.is_unused:
            heappush(self._evictable, (entry.access, -entry.length, entry.prefix_hash))
