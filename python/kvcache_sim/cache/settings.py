"""Settings of the cache layer: tiers, retention, writes and fetches of blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.tiers import WRITE_EDGES
from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.base.values import Value, field
from kvcache_sim.cache.groups import GroupSettings

#: The keys of a form in a scenario.
FORM_KEYS = ("kv_ratio", "encode", "decode")


class BlockForm(Value):
    """The form of the blocks of a tier, or on the wire: fp8, compressed, or as on the GPU."""

    #: Bytes there per byte on the GPUs, copies of ranks included.
    kv_ratio: float | Fraction = 1.0
    #: Bytes of the GPU's form that are encoded for it, and decoded from it, per second; None: any number.
    encode_bytes_per_s: int | None = None
    decode_bytes_per_s: int | None = None

    def bytes_of(self, block_bytes: int) -> int:
        """Return the bytes of a block that has ``block_bytes`` on the GPU, rounded up."""
        return block_bytes if self.kv_ratio == 1.0 else max(math.ceil(block_bytes * self.kv_ratio), 1)

    def in_core(self, block_bytes: int) -> tuple[int, int, int]:
        """Return the bytes of a block, and the times (ns) to encode and to decode it."""
        rates = self.encode_bytes_per_s, self.decode_bytes_per_s
        encode_ns, decode_ns = (0 if rate is None else -(-block_bytes * NS_PER_S // rate) for rate in rates)
        return self.bytes_of(block_bytes), encode_ns, decode_ns


#: By tier the bytes of a block there, and the times (ns) to encode and to decode it.
FormsInCore = tuple[tuple[int, int, int], ...]


def forms_in_core(wire: BlockForm, lower: Sequence[BlockForm], block_bytes: int) -> FormsInCore:
    """Return by tier the form of its blocks, the GPU's on the ``wire``; empty if all are as on the GPU."""
    forms = wire, *lower
    if all(form == BlockForm() for form in forms):
        return ()
    return tuple(form.in_core(block_bytes) for form in forms)


Accounting = Literal["detailed", "simplified"]
Semantics = Literal["tree", "vllm", "sglang"]
#: Blocks of layers: each kind of layer keeps its own, or all layers keep every block.
LayerGroups = Literal["by-kind", "as-full"]
#: Rules of a tier below the GPU; ``groups``: the tree's with cache groups.
LowerEngine = Literal[
    "vllm-offload", "vllm-simple-kv-offload", "hicache", "lmcache", "lmcache-server", "groups"
]
Touch = Literal["release", "admission"]
Overflow = Literal["wait", "drop"]
FullHit = Literal["prefill-remainder", "skip-prefill"]
Lookup = Literal["local", "cluster"]
RemoteDisk = Literal["direct", "staged"]

#: Write policy of each edge by its upper tier, unless a scenario says otherwise.
WRITE_BACK: dict[str, str] = {edge.split("->")[0]: "back" for edge in WRITE_EDGES}


class SessionViewSettings(Value):
    """Bounds on the known sessions: their number (None: no limit), and their time after a turn."""

    max_sessions: int | None = None
    ttl_ns: int | None = None

    def __post_init__(self) -> None:
        if self.max_sessions is not None and self.max_sessions < 1:
            raise UsageError(
                "out of range", where="session_view.max_sessions", got=str(self.max_sessions), expected="≥ 1"
            )
        if self.ttl_ns is not None and self.ttl_ns < 1:
            raise UsageError(
                "out of range", where="session_view.ttl", got=f"{self.ttl_ns} ns", expected="a time above 0"
            )


class PrefixViewSettings(Value):
    """Rules for sharing a prefix, and the size of the store of prefixes.

    ``min_tokens`` is the shortest shared prefix (None: one block), ``min_seen`` the number of prefills before
    it is shared, ``max_tokens`` the size limit (None: only the tier's).
    """

    min_tokens: int | None = None
    min_seen: int = 1
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("min_tokens", "min_seen", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError("out of range", where=f"prefix_view.{name}", got=str(value), expected="≥ 1")


class TierSettings(Value):
    """One tier of one machine: its name, its blocks (None: unbounded), its eviction policy, their form."""

    name: str
    capacity_blocks: int | None
    policy: str = "lru"
    form: BlockForm = BlockForm()


class PoolSettings(Value):
    """Memory without a GPU that machines share: its blocks (None: unbounded), its eviction policy."""

    capacity_blocks: int | None
    policy: str = "lru"


class StoragePrefetch(Value):
    """HiCache's prefetch from storage, and a request's wait for it (SGLang's stop policies)."""

    #: ``wait``, ``best-effort`` or ``timeout``.
    stop: str
    #: With timeout: wait from the first possible admission, and the additional wait per 1,024 tokens.
    timeout_ns: int = 1_000_000_000
    timeout_per_ki_token_ns: int = 250_000_000
    #: Fewer tokens are recomputed.
    threshold_tokens: int = 256
    #: Share of the host's tokens that prefetches in flight may occupy.
    share: float = 0.5


class CacheSettings(Value):
    """Cache settings of every machine of a cluster."""

    enabled: bool = True
    block_size_tokens: int = 512
    semantics: Semantics = "tree"
    policy: str = "lru"
    #: Rules of the tier below the GPU; None: those of the tree.
    lower_semantics: LowerEngine | None = None
    #: Tokens of the chunks that an engine's tiers store; 0: a block.
    lower_chunk_tokens: int = 0
    #: Write policy of that engine's lower tier, if it has a choice.
    lower_write: str = "back"
    #: Prefetch from that engine's last tier before admission; None: none.
    lower_prefetch: StoragePrefetch | None = None
    #: Tokens of the steps that lazy stores keep free blocks for; None: computed blocks are stored.
    lower_lazy_tokens: int | None = None
    cache_output: bool = True
    #: A block's recency is that of its last release, or of the last admission that uses it (only lru).
    touch: Touch = "release"
    #: Least number of blocks evicted at once.
    eviction_batch_blocks: int = 1
    #: Evicted blocks that the tier below cannot store now wait for space there, or are dropped.
    overflow: Overflow = "wait"
    full_hit: FullHit = "prefill-remainder"
    #: A finished request's blocks are discarded unless another request holds them.
    discard_on_finish: bool = False
    #: Number of waiting requests whose cached blocks are evicted last (CachedAttention).
    scheduler_aware_window: int = 0
    #: Bytes of KV cache per token, over all layers and GPUs, with the copies of ranks that hold the same.
    kv_bytes_per_token: int = 131_072
    #: Layers of the model: a transfer is consumed layer by layer.
    num_layers: int = 32
    lookup_ns: int = 0
    #: Blocks and reference counts of the trie, or a count of unique tokens (seed 000, 3.5).
    accounting: Accounting = "detailed"
    #: Admission policy of finished requests: a row of ``cache.admission`` or ``file.py:Name``.
    admission: str = "all"
    session_view: SessionViewSettings = SessionViewSettings()
    prefix_view: PrefixViewSettings = PrefixViewSettings()
    #: A model's KV cache groups, under vLLM's rules or the tree's; a hit is then whole blocks of their common
    #: multiple, which is ``block_size_tokens``. None: all layers keep every block.
    groups: GroupSettings | None = None

    @property
    def layer_groups(self) -> LayerGroups:
        """``by-kind`` if each kind of layer keeps its own blocks, else ``as-full``."""
        return "as-full" if self.groups is None else "by-kind"

    @property
    def block_bytes(self) -> int:
        """Bytes of a block of a tier, over all layers; with groups, of a block of their pool."""
        if self.groups is not None:
            return self.groups.block_bytes
        return self.block_size_tokens * self.kv_bytes_per_token

    @property
    def lower_chunk_blocks(self) -> int:
        """Blocks of a chunk of an engine's own tiers."""
        return max(1, self.lower_chunk_tokens // self.block_size_tokens)

    def matchable_blocks(self, tokens: int) -> int:
        """Return the most leading blocks of ``tokens`` tokens that may hit (semantics 1)."""
        if not self.enabled:
            return 0
        may_hit = tokens if self.full_hit == "skip-prefill" else tokens - 1
        return may_hit // self.block_size_tokens


class MovementSettings(Value):
    """Movement of KV between tiers. A policy is a row of its registry or ``file.py:Name``."""

    #: Write policy of each edge, by its upper tier.
    write: dict[str, str] = field(default_factory=WRITE_BACK.copy)
    write_selective_uses: int = 2
    fetch: str = "always"
    fetch_timeout_ns: int = 0
    prefetch: str = "none"
    #: Share of the prefetch target tier that blocks in flight may occupy.
    prefetch_share: float = 0.5
    #: Time before its next turn at which a paused session's blocks are prefetched.
    prefetch_lead_ns: int = 1_000_000_000
    layer_pipelining: bool = True
    #: Most layers of each load to the gpu buffered before their computation; None: all layers.
    read_buffer_layers: int | None = None
    #: Lookup of a prefix: on the own machine, or also in the lower tiers of all others.
    lookup: Lookup = "local"
    #: Another machine's lowest tiers are read over all channels at once, or copied up there first.
    remote_disk: RemoteDisk = "direct"
    #: Choice of a channel for edges with several channels.
    channel_choice: str = "assigned"
    #: Edges, by upper tier, on which a promoted block leaves the lower tier.
    exclusive: frozenset[str] = frozenset()
