"""Changes of a machine's stores since the last read, as events: stored runs, removed blocks."""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_sim.base.tiers import TIERS
from kvcache_sim.extras.live.events.hashes import BlockHashes, as_integer
from kvcache_sim.extras.live.events.layout import MEDIA, OTHER_MEDIUM, BlockRemoved, BlockStored, Event, Hash
from kvcache_sim.extras.live.prompts import Block, BlockNumbers

#: One change: (tier, True if stored, the block's key); changes are in time order.
Change = tuple[int, bool, int]
#: Keys outside of all prompts.
_PRIVATE = 1 << 63
#: vLLM's group of full attention.
_GROUP = 0


class EventSource:
    """Turns changes of one store into events; ``as_bytes`` publishes whole hashes.

    Consecutive blocks are one event, for example a request's blocks that fill at once. Hashes are kept as
    long as their blocks are known. Cost: one SHA-256 per block.
    """

    def __init__(self, blocks: BlockNumbers, hashes: BlockHashes, as_bytes: bool) -> None:
        self._blocks, self._hashes, self._as_bytes = blocks, hashes, as_bytes
        self._digests: dict[int, bytes] = {}
        #: Blocks on tiers, for blocks that are forgotten before they are removed.
        self._held: dict[int, int] = {}

    def events(self, changes: Iterable[Change]) -> list[Event]:
        """Return the events of some changes."""
        found: list[Event] = []
        run: list[Block] = []
        run_tier = -1
        for tier, stored, key in changes:
            if key >= _PRIVATE:
                continue
            block = self._blocks.block(key) if stored else None
            follows = block is not None and run and run_tier == tier and block.parent == run[-1].number
            if run and not follows:
                found.append(self._stored(run, run_tier))
                run = []
            if not stored:
                found += self._removed(key, tier)
            elif block is not None:
                self._held[key] = self._held.get(key, 0) + 1
                run.append(block)
                run_tier = tier
        if run:
            found.append(self._stored(run, run_tier))
        return found

    def forget(self) -> None:
        """Forget the hashes of blocks that are neither known nor on any tier."""
        blocks, held = self._blocks, self._held
        self._digests = {
            key: digest
            for key, digest in self._digests.items()
            if key in held or blocks.block(key) is not None
        }

    def clear(self) -> None:
        """Forget all blocks on tiers."""
        self._held.clear()

    def _stored(self, run: list[Block], tier: int) -> BlockStored:
        parent = None if run[0].parent < 0 else self._published(self._digest(run[0].parent))
        return BlockStored(
            block_hashes=[self._published(self._digest(block.number)) for block in run],
            parent_block_hash=parent,
            token_ids=[token for block in run for token in block.tokens],
            block_size=self._blocks.block_size,
            lora_id=None,
            medium=medium_of(tier),
            lora_name=None,
            extra_keys=_extra_keys(run),
            group_idx=_GROUP,
        )

    def _removed(self, key: int, tier: int) -> list[Event]:
        left = self._held.get(key, 0) - 1
        if left > 0:
            self._held[key] = left
        else:
            self._held.pop(key, None)
        digest = self._digests.get(key)
        if digest is None:
            return []
        return [BlockRemoved([self._published(digest)], medium_of(tier), _GROUP)]

    def _digest(self, number: int) -> bytes:
        """Return a block's hash; its unhashed predecessors are hashed first."""
        chain = []
        at: int = number
        while at >= 0 and at not in self._digests:
            block = self._blocks.block(at)
            assert block is not None, "a stored block is known"
            chain.append(block)
            at = block.parent
        for block in reversed(chain):
            parent = self._hashes.root if block.parent < 0 else self._digests[block.parent]
            extra = (block.salt,) if block.salt else None
            self._digests[block.number] = self._hashes.block(parent, block.tokens, extra)
        return self._digests[number]

    def _published(self, digest: bytes) -> Hash:
        return digest if self._as_bytes else as_integer(digest)


def medium_of(tier: int) -> str:
    """Return vLLM's name of a tier."""
    return MEDIA.get(TIERS[tier], OTHER_MEDIUM)


def _extra_keys(run: list[Block]) -> list[tuple[str, ...] | None] | None:
    if not any(block.salt for block in run):
        return None
    return [(block.salt,) if block.salt else None for block in run]
