"""Settings of the serving floor: the replica, a machine, the router, the cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from kvcache_sim.cache.settings import CacheSettings, MovementSettings, PoolSettings, TierSettings
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from kvcache_sim.model.step_time import StepTime
from kvcache_sim.serving.membership.plan import MembershipPlan
from kvcache_sim.serving.models.settings import ModelsSettings
from kvcache_sim.serving.speculation import SpeculationSettings
from kvcache_sim.serving.tenants.settings import TenancySettings
from kvcache_sim.values import Value, field

#: Whether the scheduler decides on a step while the one before it runs, and how answers then end.
AsyncScheduling = Literal["none", "length", "stop-token"]
#: Whose rules compose the steps.
SchedulerName = Literal["kvsim", "vllm", "sglang"]
#: Whom of the queue SGLang's scheduler looks at first.
SchedulePolicy = Literal["fcfs", "lpm", "dfs-weight", "lof"]
DuplicatePrefill = Literal["recompute", "wait"]
#: What a machine does of a request: its prefill, its decoding, or both.
Role = Literal["both", "prefill", "decode"]
HandoverPath = Literal["gpu-direct", "via-cpu"]
HandoverTransfer = Literal["at-end", "layer-by-layer"]
FirstToken = Literal["decode", "prefill"]
#: What a router takes for the machines' caches: what they have, or what it sent them.
IndexKind = Literal["truth", "estimated", "gateway-tree"]


class ReplicaSettings(Value):
    """An engine instance: vLLM-v1-like continuous batching (semantics 5)."""

    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256
    #: The context window: a request whose prompt and answer are longer is rejected. None: any length.
    max_model_len: int | None = None
    #: No service time: each request is looked up, computed and released before the next.
    instant: bool = False
    #: A row of ``serving.queue`` or ``file.py:Name``.
    queue_order: str = "fcfs"
    #: What a request does whose next block another one is computing right now: compute it too, or wait.
    duplicate_prefill: DuplicatePrefill = "recompute"
    #: Who composes the steps: kvsim's own rules, or an engine's scheduler.
    scheduler: SchedulerName = "kvsim"
    #: vLLM's: share of the pool's blocks that an admission leaves free while others run.
    watermark: float = 0.0
    #: vLLM's: a request is admitted only where all its tokens have room.
    reserve_full_isl: bool = True
    #: vLLM's: most tokens of one request in a step where others are there; 0: no such bound.
    long_prefill_token_threshold: int = 0
    #: Machines, one after another, that are data-parallel ranks of one engine and step together.
    ranks: int = 1
    #: Pipeline stages, which as many micro-batches of vLLM's scheduler are in flight through.
    stages: int = 1
    #: Tokens that decoding requests have drafted; None: none.
    speculation: SpeculationSettings | None = None
    #: SGLang's: who of the queue is looked at first.
    schedule_policy: SchedulePolicy = "fcfs"
    #: SGLang's: most tokens of prompts that a step takes up, whatever its chunk.
    max_prefill_tokens: int = 16384
    #: SGLang's: decoding requests join a step that computes prompts.
    enable_mixed_chunk: bool = False
    #: SGLang's: what the share of an answer that is reserved at an admission is multiplied by.
    schedule_conservativeness: float = 1.0
    #: Extra time between the end of a step and the next step's start.
    step_overhead_ns: int = 0
    #: ``length``: the scheduler foresees an answer's end; ``stop-token``: it finds out a step late.
    async_scheduling: AsyncScheduling = "none"
    #: From a request's arrival until the scheduler has it: HTTP and tokenising.
    client_offset_ns: int = 0
    #: The same for each token of its prompt.
    client_offset_per_token_ns: int = 0
    #: CPU time to submit one piece of a copy to or from the gpu, before the next step is launched.
    copy_submit_ns: int = 0
    #: Share of the gpu that such a copy takes while it occupies its link.
    copy_gpu_share: float = 0.0

    @property
    def charges_copies(self) -> bool:
        """Whether copies take time from the steps."""
        return bool(self.copy_submit_ns or self.copy_gpu_share)

    @property
    def most_decode_tokens(self) -> int:
        """Most tokens that decoding requests take in one step."""
        return self.max_num_seqs * (1 + self.drafted_tokens)

    @property
    def drafted_tokens(self) -> int:
        """Tokens drafted for a decoding request in one step, which need room beside its own."""
        return 0 if self.speculation is None else self.speculation.tokens

    @property
    def steps_in_flight(self) -> int:
        """Steps that vLLM's scheduler may have under way at one time."""
        lookahead = int(self.scheduler == "vllm" and self.async_scheduling != "none")
        return max(1 + lookahead, self.stages)

    @property
    def lost_blocks(self) -> int:
        """Blocks at the end of every hit that are computed again."""
        return int(self.speculation is not None and self.speculation.loses_last_block)

    def client_ns(self, prompt_num_tokens: int) -> int:
        """Return the time from the arrival of a request with such a prompt until the scheduler has it."""
        return self.client_offset_ns + self.client_offset_per_token_ns * prompt_num_tokens


class MachineSettings(Value):
    """One machine: tiers from fast to slow, its replica, and the cost of a step on its GPU.

    ``edge_channels`` names the channel of each local edge, such as ``"cpu->gpu"``; the same name on two edges
    (or machines) means that they contend.
    """

    tiers: tuple[TierSettings, ...]
    step_time: StepTime
    replica: ReplicaSettings = ReplicaSettings()
    edge_channels: dict[str, str] = field(default_factory=dict)
    #: All channels of the edges that have several, in the scenario's order.
    edge_rails: dict[str, tuple[str, ...]] = field(default_factory=dict)
    role: Role = "both"
    #: KV bytes of a token and layers, where its model is not the cluster's.
    kv: tuple[int, int] | None = None


class RouterSettings(Value):
    """Which machine takes a request: a policy of ``serving.router.registry.ROUTERS`` or ``file.py:Name``."""

    policy: str = "round-robin"
    #: Of ``longest-prefix``: largest / smallest load above which only the least loaded are asked.
    load_threshold: float = 2.0
    #: Of ``overlap-cost``: what a block of prefill weighs against a block of decode.
    overlap_weight: float = 1.0
    #: Of ``cache-aware``: share of a prompt above which the machine that has it takes it.
    cache_threshold: float = 0.3
    #: Of ``cache-aware``: loads are uneven when they differ by more requests than this and the largest is
    #: more than so many times the smallest.
    balance_abs_threshold: int = 64
    balance_rel_threshold: float = 1.5
    #: Blocks that the router's own index holds of each machine; None: it sees the truth, or as many as the
    #: gateway's own default (``index_kind``).
    index_blocks: int | None = None
    #: How long after a first token the index learns of the prompt.
    index_delay_ns: int = 0
    #: What the router takes for the machines' caches.
    index_kind: IndexKind = "truth"
    #: Of ``gateway-tree``: how often it is cut back to its size.
    index_eviction_interval_ns: int = 120_000_000_000
    #: The engines' own figures are as old as the last multiple of this; 0: as they are now.
    view_interval_ns: int = 0
    #: Of ``weighted``: weight by scorer.
    scorers: dict[str, float] = field(default_factory=lambda: {"prefix": 3.0, "kv-use": 2.0, "queue": 2.0})
    #: Of ``dynamo-kv``: 0 takes the least cost, more spreads.
    temperature: float = 0.0
    #: Of ``kvaware``: tokens of a prompt that may be missing where it is sent.
    kv_aware_threshold_tokens: int = 2000
    #: Of ``loadaware``: what load weighs against the cached share of the prompt.
    load_weight: float = 1.0
    #: Of ``consistent-hashing``: load / mean load above which the next machine takes it; None: never.
    max_load_skew: float | None = 1.5


class HandoverSettings(Value):
    """How the KV of a prompt goes from the machine that computed it to the one that decodes."""

    #: From GPU to GPU, or over both machines' CPUs.
    path: HandoverPath = "gpu-direct"
    #: Once the prompt is computed, or each layer of its last chunk as it is.
    transfer: HandoverTransfer = "at-end"
    #: Who answers the client: the first token is out when the KV has arrived, or when it was computed.
    first_token: FirstToken = "decode"
    #: Which decode machine: a policy as in ``RouterSettings``.
    router: str = "least-loaded"
    #: Channels by (source, target).
    network: NetworkSettings = NetworkSettings(default=ChannelSettings("handover", 50_000_000_000, 5_000))


class ClusterSettings(Value):
    """All machines, the channels between their tiers, and the router in front of them."""

    machines: tuple[MachineSettings, ...]
    channels: dict[str, ChannelSettings]
    cache: CacheSettings = CacheSettings()
    movement: MovementSettings = MovementSettings()
    network: NetworkSettings = NetworkSettings()
    router: RouterSettings = RouterSettings()
    handover: HandoverSettings = HandoverSettings()
    #: Memory that all machines share, a machine without a GPU; None: there is none.
    pool: PoolSettings | None = None
    #: Who joins, drains or is lost while requests are served.
    membership: MembershipPlan = MembershipPlan()
    #: What tenants are due; None: nobody asks who sent a request.
    tenants: TenancySettings | None = None
    #: Which machines serve which model; None: every machine serves all.
    models: ModelsSettings | None = None
    seed: int = 0

    def cache_of(self, machine: int) -> CacheSettings:
        """Return how blocks are kept on a machine, in the sizes of its model."""
        kv = self.machines[machine].kv
        if kv is None:
            return self.cache
        return replace(self.cache, kv_bytes_per_token=kv[0], num_layers=kv[1])

    def in_tokens(self) -> ClusterSettings:
        """Return the cluster with blocks of one token, and as many of them as its blocks hold."""
        size = self.cache.block_size_tokens
        machines = []
        for machine in self.machines:
            tiers = tuple(
                tier
                if tier.capacity_blocks is None
                else replace(tier, capacity_blocks=tier.capacity_blocks * size)
                for tier in machine.tiers
            )
            machines.append(replace(machine, tiers=tiers))
        return replace(self, machines=tuple(machines), cache=replace(self.cache, block_size_tokens=1))
