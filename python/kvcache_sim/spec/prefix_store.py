"""Prefixes shared between requests: ``global_prefix_store`` (seed 000, 3.2 point 3 and 3.4).

A prefix may be shared when it is long enough and was prefilled often enough: every prompt counts once for
each of its whole-block prefixes, at its first admission and after its own lookup. The store has an entry for
each shared prefix, which requests enter as blocks are computed; a search tries the longest candidate first.
An entry's reference count is the number of its users. At zero, and without a longer entry, it is evictable,
not gone: it is evicted for space or the size limit, least recently used first, of equals the longest first.
Under detailed accounting the tiers have the blocks, and entries are kept only for a size limit: a prefix that
the limit evicts, or that finds no space within it, is not shared until a request enters it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, NamedTuple

from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.cache.store import Times
from kvcache_sim.spec.block_store import BlockStore

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

    def __init__(
        self, block_size_tokens: int, criteria: PrefixCriteria | None = None, max_tokens: int | None = None
    ) -> None:
        self.block_size_tokens, self.max_tokens = block_size_tokens, max_tokens
        self.criteria = criteria or PrefixCriteria(1, 1)
        self.global_prefix_store: dict[PrefixHash, GlobalPrefixCacheInfo] = {}
        #: Counters of releases, of blocks entered before, and of evictions for the size limit.
        self.access = self.merged_blocks = self.evicted_blocks = 0
        self._evictable: list[tuple[int, int, PrefixHash]] = []
        #: Prefixes that the size limit evicted or refused since they were last entered.
        self._left: set[PrefixHash] = set()

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

    def shareable_blocks(self, prefixes: Sequence[PrefixHash]) -> int:
        """Return the blocks of the longest prefix that may be shared: admitted, and within the size limit."""
        kept = next((k for k, prefix in enumerate(prefixes) if prefix in self._left), len(prefixes))
        return self.criteria.admitted_blocks(prefixes[:kept])

    def hold_longest(self, prefixes: Sequence[PrefixHash]) -> int:
        """Count a user of the longest prefix held; return its blocks."""
        blocks = self.longest(prefixes)
        if blocks:
            self.acquire(prefixes[blocks - 1])
        return blocks

    def enter(self, prefixes: Sequence[PrefixHash], blocks: int) -> int:
        """Enter the prefixes of a request that holds the first ``blocks``; return the blocks it holds now."""
        while blocks < len(prefixes):
            prefix, parent = prefixes[blocks], prefixes[blocks - 1] if blocks else None
            if prefix in self.global_prefix_store:
                self.merged_blocks += 1
            elif not self.criteria.admits(prefix):
                break
            elif not self._make_space():
                self._left.update(prefixes[blocks:])
                break
            else:
                self.add(prefix, parent)
            self.acquire(prefix)
            if parent is not None:
                self.release(parent)
            blocks += 1
        return blocks

    def _make_space(self) -> bool:
        """Make space for a block within the size limit; False if all prefixes are in use."""
        while self.max_tokens is not None and self.tokens + self.block_size_tokens > self.max_tokens:
            oldest = self.oldest_unused()
            if oldest is None:
                return False
            self._left.add(oldest.prefix_hash)
            self.evict(oldest)
            self.evicted_blocks += 1
        return True

    def add(self, prefix_hash: PrefixHash, parent: PrefixHash | None) -> None:
        """Add a prefix one block longer than its parent."""
        shorter = None if parent is None else self.global_prefix_store[parent]
        length = self.block_size_tokens
        if shorter is not None:
            shorter.longer += 1
            length += shorter.length
        self.global_prefix_store[prefix_hash] = GlobalPrefixCacheInfo(length, prefix_hash, shorter)
        self._left.discard(prefix_hash)

    def acquire(self, prefix_hash: PrefixHash) -> None:
        """Count a user of the prefix, and so of every shorter one."""
        self.global_prefix_store[prefix_hash].reference_count += 1

    def release(self, prefix_hash: PrefixHash) -> None:
        """Remove a user; without users the prefix becomes evictable."""
        entry = self.global_prefix_store[prefix_hash]
        entry.reference_count -= 1
        self._offer(entry)

    def end_use(self, prefixes: Sequence[PrefixHash], now_ns: int | None) -> None:
        """End the use of a prefix; with a time (ns) it is the most recently used from now on."""
        self.access += now_ns is not None
        if prefixes and now_ns is not None:
            self.touch(prefixes[-1], self.access, now_ns)
        if prefixes:
            self.release(prefixes[-1])

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


class HeldPrefix(NamedTuple):
    """The longest prefix that a lease holds."""

    request: int
    blocks: int


class LimitedStore:
    """A block store whose requests enter and hold prefixes, for a size limit under detailed accounting."""

    def __init__(
        self, store: BlockStore, prefixes: GlobalPrefixStore, path: Callable[[int, int], list[PrefixHash]]
    ) -> None:
        self._store, self._prefixes, self._path = store, prefixes, path
        #: By lease.
        self._held: dict[int, HeldPrefix] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def acquire(self, request: int, depth: int) -> int:
        """Hold the first ``depth`` blocks of a request, and the longest prefix of these."""
        lease = self._store.acquire(request, depth)
        self._held[lease] = HeldPrefix(request, self._prefixes.hold_longest(self._path(request, depth)))
        return lease

    def commit(self, lease: int, to: int, ready: Times | None = None) -> None:
        """Share computed blocks up to ``to``, and enter their prefixes."""
        self._store.commit(lease, to, ready)
        request, blocks = self._held[lease]
        self._held[lease] = HeldPrefix(request, self._prefixes.enter(self._path(request, to), blocks))

    def abandon(self, lease: int) -> None:
        """Undo an acquisition without an effect on recency."""
        self._store.abandon(lease)
        self._prefixes.end_use(self._path(*self._held.pop(lease)), None)

    def release(self, lease: int, now_ns: int) -> None:
        """End a lease; its prefix is the most recently used."""
        self._store.release(lease, now_ns)
        self._prefixes.end_use(self._path(*self._held.pop(lease)), now_ns)
