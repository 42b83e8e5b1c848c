"""Settings of a simulated cluster: integers in tokens, blocks, bytes and ns; plain data, no rules.

They are what a person configures (seed 001, "How to model serving system"): machines with one to n tiers, the
channels of their edges, how blocks are kept, how they move, who routes and hands over. The keys of a scenario
with the same names say what each one means (``kvsim help scenario``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kvcache_sim.model.step_time import StepTime
from kvcache_sim.values import dataclass


@dataclass(frozen=True, slots=True)
class TierSettings:
    """One tier: its name, its capacity (None: unbounded) and its eviction policy."""

    name: str
    capacity_blocks: int | None
    policy: str = "lru"


@dataclass(frozen=True, slots=True)
class SlowdownSettings:
    """A span of time in which a channel has a share of its rate, in millionths."""

    from_ns: int
    until_ns: int
    share_ppm: int


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """One channel; the edges that name it contend (semantics 3)."""

    name: str
    bandwidth_bytes_per_s: int
    latency_ns: int = 0
    piece_overhead_ns: int = 0
    piece_gap_ns: int = 0
    piece_submit_ns: int = 0
    sharing: Literal["fifo", "fair"] = "fifo"
    priority: Literal["in-order", "loads-first"] = "in-order"
    latency_occupies: bool = False
    #: In order of time, without overlap.
    slowdowns: tuple[SlowdownSettings, ...] = ()


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Channels between machines by (source, target); any other pair has one of its own like ``default``."""

    pairs: Mapping[tuple[int, int], str]
    default: ChannelSettings


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """The engine instance of a machine: a vLLM-v1-like continuous batch (semantics 5)."""

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int | None
    instant: bool
    queue_order: str
    duplicate_prefill: Literal["recompute", "wait"]
    step_overhead_ns: int
    async_scheduling: Literal["none", "length", "stop-token"]
    client_offset_ns: int
    client_offset_per_token_ns: int


@dataclass(frozen=True, slots=True)
class MachineSettings:
    """One machine: tiers from fast to slow, its engine, and the channels of its edges by edge name."""

    tiers: tuple[TierSettings, ...]
    step_time: StepTime
    replica: ReplicaSettings
    edge_channels: Mapping[str, str]
    #: All channels of the edges that have several.
    edge_rails: Mapping[str, tuple[str, ...]]
    role: Literal["both", "prefill", "decode"]


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """Settings of the block store (semantics 1 and 2; seed 000, 3.4 and 3.5)."""

    enabled: bool
    block_size_tokens: int
    kv_bytes_per_token: int
    num_layers: int
    cache_output: bool
    full_hit: Literal["prefill-remainder", "skip-prefill"]
    discard_on_finish: bool
    admission: Literal["all", "prompt"]
    touch: Literal["release", "admission"]
    eviction_batch_blocks: int
    scheduler_aware_window: int
    lookup_ns: int
    accounting: Literal["detailed", "simplified"]
    max_sessions: int | None
    session_ttl_ns: int | None
    min_prefix_tokens: int | None
    min_prefix_seen: int
    max_prefix_tokens: int | None
    #: Tokens of the blocks that requests share; simplified accounting counts in blocks of one token.
    shared_block_tokens: int

    @property
    def block_bytes(self) -> int:
        """Bytes of a block over all layers."""
        return self.block_size_tokens * self.kv_bytes_per_token


@dataclass(frozen=True, slots=True)
class MovementSettings:
    """Settings of moves between tiers and machines (semantics 4)."""

    #: Write policy by the upper tier of each edge.
    write: Mapping[str, str]
    write_selective_uses: int
    fetch: str
    fetch_timeout_ns: int
    prefetch: Literal["none", "queued", "session"]
    prefetch_share: float
    prefetch_lead_ns: int
    layer_pipelining: bool
    read_buffer_layers: int | None
    lookup: Literal["local", "cluster"]
    remote_disk: Literal["direct", "staged"]
    channel_choice: Literal["assigned", "emptiest"]
    #: Upper tiers of the edges on which a promoted block leaves the lower tier.
    exclusive: frozenset[str]


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """The policy that chooses a machine for each request (semantics 5)."""

    policy: str
    load_threshold: float
    overlap_weight: float


@dataclass(frozen=True, slots=True)
class HandoverSettings:
    """Settings of the hand-over of a prompt's KV from the prefill to the decode machine."""

    path: Literal["gpu-direct", "via-cpu"]
    transfer: Literal["at-end", "layer-by-layer"]
    first_token: Literal["decode", "prefill"]
    router: str
    network: NetworkSettings


@dataclass(frozen=True, slots=True)
class Settings:
    """A cluster: its machines, channels, caches, movement, router and hand-over."""

    machines: tuple[MachineSettings, ...]
    channels: Mapping[str, ChannelSettings]
    network: NetworkSettings
    cache: CacheSettings
    movement: MovementSettings
    router: RouterSettings
    handover: HandoverSettings
    #: Memory without a GPU that all machines write and read; None: there is none.
    pool: TierSettings | None = None
    seed: int = 0
