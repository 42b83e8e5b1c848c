"""What one layer keeps of a sequence: entries for all tokens, for the last ones, or one state."""

from __future__ import annotations

from typing import Literal

from kvcache_sim.values import dataclass

#: ``all``: an entry stays as long as the sequence; ``window``: only those of the last tokens; ``chunk``: only
#: those of the current chunk; ``state``: one entry, whatever the length.
Reach = Literal["all", "window", "chunk", "state"]


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One kind of entry that a layer keeps on one GPU.

    ``entry_bytes`` is one entry; ``tokens_per_entry`` how many tokens share it (4 where latents are
    compressed); ``reach_tokens`` the window or the chunk, 0 for ``all`` and ``state``. Layers of equal caches
    can share blocks: they are what an engine makes a KV cache group of.
    """

    what: str
    entry_bytes: int
    reach: Reach = "all"
    reach_tokens: int = 0
    tokens_per_entry: int = 1

    def bytes_at(self, length_tokens: int) -> int:
        """Return the bytes kept of a sequence of ``length_tokens``; a chunk counts as full once it can be."""
        if length_tokens <= 0:
            return 0
        if self.reach == "state":
            return self.entry_bytes
        kept = min(length_tokens, self.reach_tokens) if self.reach_tokens else length_tokens
        return kept // self.tokens_per_entry * self.entry_bytes

    @property
    def bytes_per_token(self) -> float:
        """Bytes that one more token adds to a long sequence."""
        return self.entry_bytes / self.tokens_per_entry if self.reach == "all" else 0.0

    @property
    def fixed_bytes(self) -> int:
        """Bytes of a long sequence that do not grow with it: a full window or chunk, or the state."""
        if self.reach == "all":
            return 0
        return self.entry_bytes if self.reach == "state" else self.bytes_at(self.reach_tokens)
