"""Settings of the serving layer: the replica, a machine, the router, the cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from kvcache_sim.base.values import Value, field
from kvcache_sim.cache.settings import BlockForm, CacheSettings, MovementSettings, PoolSettings, TierSettings
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from kvcache_sim.model.releases import Release
from kvcache_sim.model.step_time import StepTime
from kvcache_sim.serving.membership.plan import MembershipPlan
from kvcache_sim.serving.models.settings import ModelsSettings
from kvcache_sim.serving.speculation import SpeculationSettings
from kvcache_sim.serving.tenants.settings import TenancySettings

#: Asynchronous scheduling: a step is scheduled while the previous step runs; the end of an answer.
AsyncScheduling = Literal["none", "length", "stop-token"]
#: The scheduler that composes the steps.
SchedulerName = Literal["kvsim", "vllm", "sglang"]
#: Order in which SGLang's scheduler visits the queue.
StageSteps = Literal["returned", "chained", "spaced"]
SchedulePolicy = Literal["fcfs", "lpm", "dfs-weight", "lof"]
DuplicatePrefill = Literal["recompute", "wait"]
#: Part of a request that a machine serves: its prefill, its decoding, or both.
Role = Literal["both", "prefill", "decode"]
HandoverPath = Literal["gpu-direct", "via-cpu"]
HandoverTransfer = Literal["at-end", "layer-by-layer"]
FirstToken = Literal["decode", "prefill"]
#: Controller of the router ``aimd``.
AffinityMode = Literal["session", "sibling-group"]
Controller = Literal["aimd", "sigmoid"]
#: The router's source of cache contents: the machines' caches, or the prompts that it sent.
IndexKind = Literal["truth", "estimated", "gateway-tree"]


class SglangRelease(Value):
    """Rules in which SGLang's releases differ, each a row of ``model/data/releases/sglang.toml``."""

    drops_finished_each_pass: bool = True
    keeps_row_of_chunk: bool = True
    stops_at_spent_budget: bool = True
    writes_after_step: bool = True
    waits_from_admission: bool = True

    @classmethod
    def of(cls, release: Release) -> SglangRelease:
        """Return the rules of a release."""
        return cls(**{name: release.value(name) for name in cls.__struct_fields__})


class ReplicaSettings(Value):
    """An engine instance: vLLM-v1-like continuous batching (semantics 5)."""

    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256
    #: The context window: a request with a longer prompt and answer is rejected. None: any length.
    max_model_len: int | None = None
    #: No service time: each request is looked up, computed and released before the next.
    instant: bool = False
    #: A row of ``serving.queue`` or ``file.py:Name``.
    queue_order: str = "fcfs"
    #: A request whose next block another request is computing recomputes it, or waits.
    duplicate_prefill: DuplicatePrefill = "recompute"
    #: Scheduler of the steps: kvsim's own rules, or an engine's.
    scheduler: SchedulerName = "kvsim"
    #: vLLM's: share of the pool's blocks that an admission leaves free while others run.
    watermark: float = 0.0
    #: vLLM's: a request is admitted only if all its tokens fit.
    reserve_full_isl: bool = True
    #: vLLM's: most tokens of one request in a step with other requests; 0: no bound.
    long_prefill_token_threshold: int = 0
    #: vLLM's: the bound is at least an equal share of ``max_num_batched_tokens``.
    long_prefill_token_threshold_adaptive: bool = False
    #: vLLM's: most tokens of a step; None: ``max_num_batched_tokens``.
    max_num_scheduled_tokens: int | None = None
    #: vLLM's: most requests that run; None: ``max_num_seqs``.
    max_num_active_seqs: int | None = None
    #: vLLM's: steps from one with prompts to the next that may have some, while requests decode.
    prefill_schedule_interval: int = 1
    #: vLLM's: requests that wait or run, and tokens of prompts without an answer, that fill the queue.
    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None
    #: SGLang's: most waiting requests; more are turned away.
    max_queued_requests: int | None = None
    #: Consecutive machines that are data-parallel ranks of one engine and step together.
    ranks: int = 1
    #: Pipeline stages; as many micro-batches of vLLM's scheduler are in flight.
    stages: int = 1
    #: vLLM's: when asynchronous scheduling decides a request's next step over stages: when its token has
    #: ``returned``, at once and ``chained`` to the step before, or ``spaced`` by as many decisions as stages.
    pp_steps: StageSteps = "spaced"
    #: Host time of each stage's worker to launch a micro-batch.
    stage_launch_ns: int = 0
    #: Drafts of decoding requests; None: none.
    speculation: SpeculationSettings | None = None
    #: SGLang's: order in which the queue is visited.
    schedule_policy: SchedulePolicy = "fcfs"
    #: SGLang's: most prompt tokens of a step, independent of its chunk.
    max_prefill_tokens: int = 16384
    #: SGLang's: decoding requests join a step that computes prompts.
    enable_mixed_chunk: bool = False
    #: SGLang's: multiplier of the share of an answer reserved at admission.
    schedule_conservativeness: float = 1.0
    #: SGLang's, in the order of priorities: a running request leaves for one whose priority is smaller by
    #: more than this; None: never.
    priority_preemption: int | None = 10
    sglang_release: SglangRelease = SglangRelease()
    #: Extra time between the end of a step and the next step's start.
    step_overhead_ns: int = 0
    #: Over pipeline stages: the same per sequence of a micro-batch.
    step_overhead_per_sequence_ns: int = 0
    #: ``length``: the end of an answer is known in advance; ``stop-token``: a step late.
    async_scheduling: AsyncScheduling = "none"
    #: Time from a request's arrival until the scheduler has it: HTTP and tokenizing.
    client_offset_ns: int = 0
    #: The same per token of its prompt.
    client_offset_per_token_ns: int = 0
    #: CPU time to submit one piece of a copy to or from the gpu, before the next step is launched.
    copy_submit_ns: int = 0
    #: Share of the gpu that a copy takes while it occupies its link.
    copy_gpu_share: float = 0.0

    @property
    def turns_away(self) -> bool:
        """True if a request may be turned away when it comes."""
        return (self.max_num_queued_reqs, self.max_num_queued_tokens, self.max_queued_requests) != (None,) * 3

    @property
    def most_decode_tokens(self) -> int:
        """Most tokens that decoding requests take in one step."""
        return self.max_num_seqs * (1 + self.drafted_tokens)

    @property
    def drafted_tokens(self) -> int:
        """Tokens drafted for a decoding request in one step, which need blocks in addition to its own."""
        return 0 if self.speculation is None else self.speculation.tokens

    @property
    def steps_in_flight(self) -> int:
        """Most steps of vLLM's scheduler in flight."""
        lookahead = int(self.scheduler == "vllm" and self.async_scheduling != "none")
        if self.stages > 1:
            return self.stages + int(lookahead and self.pp_steps == "spaced")
        return 1 + lookahead

    @property
    def lost_blocks(self) -> int:
        """Blocks at the end of every hit that are computed again."""
        return int(self.speculation is not None and self.speculation.loses_last_block)

    @property
    def has_client_time(self) -> bool:
        """True if the scheduler has a request some time after its arrival."""
        return bool(self.client_offset_ns or self.client_offset_per_token_ns)


class MachineSettings(Value):
    """One machine: tiers from fast to slow, its replica, and the cost of a step on its GPU.

    ``edge_channels`` names the channel of each local edge, for example ``"cpu->gpu"``; edges (or machines)
    with the same channel contend.
    """

    tiers: tuple[TierSettings, ...]
    step_time: StepTime
    replica: ReplicaSettings = ReplicaSettings()
    edge_channels: dict[str, str] = field(default_factory=dict)
    #: All channels of the edges with several channels, in the scenario's order.
    edge_rails: dict[str, tuple[str, ...]] = field(default_factory=dict)
    role: Role = "both"
    #: KV bytes per token and layers, if its model is not the cluster's.
    kv: tuple[int, int] | None = None


class AffinitySettings(Value):
    """Bindings of sessions to machines: their keys, and their time to live after the last request."""

    mode: AffinityMode = "session"
    ttl_ns: int = 300_000_000_000


class RouterSettings(Value):
    """The router: a policy of ``serving.router.registry.ROUTERS`` or ``file.py:Name``, and its options."""

    policy: str = "round-robin"
    #: Of ``longest-prefix``: largest / smallest load above which only the least loaded are candidates.
    load_threshold: float = 2.0
    #: Of ``overlap-cost``: weight of a block of prefill relative to a block of decode.
    overlap_weight: float = 1.0
    #: Of ``dynamo-kv``: credit of a cached block on the GPU, in blocks of prefill.
    overlap_credit: float = 1.0
    #: Of ``cache-aware``: share of a prompt above which the machine that has it is chosen.
    cache_threshold: float = 0.3
    #: Of ``cache-aware``: loads are uneven if they differ by more requests than this and the largest is
    #: more than ``balance_rel_threshold`` times the smallest.
    balance_abs_threshold: int = 64
    balance_rel_threshold: float = 1.5
    #: Blocks per machine in the router's own index; None: it sees the truth, or the gateway's own default
    #: (``index_kind``).
    index_blocks: int | None = None
    #: Time from a first token until the prompt enters the index.
    index_delay_ns: int = 0
    #: The router's source of cache contents.
    index_kind: IndexKind = "truth"
    #: Of ``gateway-tree``: interval at which it is cut back to its size.
    index_eviction_interval_ns: int = 120_000_000_000
    #: The engines' figures are those of the last multiple of this; 0: current.
    view_interval_ns: int = 0
    #: Of ``weighted``: weight by scorer.
    scorers: dict[str, float] = field(default_factory={"prefix": 3.0, "kv-use": 2.0, "queue": 2.0}.copy)
    #: Of ``dynamo-kv``: 0 chooses the least cost, larger values spread requests.
    temperature: float = 0.0
    #: Of ``kvaware``: most tokens of a prompt that may be missing on its machine.
    kv_aware_threshold_tokens: int = 2000
    #: Of ``loadaware``: weight of load relative to the cached share of the prompt.
    load_weight: float = 1.0
    #: Of ``consistent-hashing``: load / mean load above which the next machine is chosen; None: never.
    max_load_skew: float | None = 1.5
    #: Of ``lmetric``: machines with a hot prefix are left out after a streak; a class of prompts is as many
    #: leading blocks, its share that of the last choices.
    hotspot_detection: bool = True
    class_prefix_blocks: int = 4
    window_requests: int = 1000
    #: Of adaptive routers: least time between two updates, requests that damp loads, the controller.
    update_interval_ns: int = 100_000_000
    load_scale: float = 8.0
    controller: Controller = "aimd"
    #: Bindings in front of the policy; None: it chooses for each request.
    affinity: AffinitySettings | None = None


class HandoverSettings(Value):
    """Transfer of a prompt's KV from the machine that computed it to the machine that decodes."""

    #: From GPU to GPU, or over both machines' CPUs.
    path: HandoverPath = "gpu-direct"
    #: Start of the transfer: after the prompt, or after each layer of its last chunk.
    transfer: HandoverTransfer = "at-end"
    #: Sender of the first token: the decode machine once the KV has arrived, or the prefill machine.
    first_token: FirstToken = "decode"
    #: Router of decode machines: a policy as in ``RouterSettings``.
    router: str = "least-loaded"
    #: Which requests are handed over, and the figures of the rule (``handover.rules``).
    decide: str = "always"
    threshold_tokens: int | None = None
    threshold_share: float = 0.7
    min_prompt_tokens: int = 0
    prefill_busy: float | None = None
    #: The form of KV on the wire.
    form: BlockForm = BlockForm()
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
    #: Memory that all machines share, modeled as a machine without a GPU; None: none.
    pool: PoolSettings | None = None
    #: Machines that join, drain or are lost while requests are served.
    membership: MembershipPlan = MembershipPlan()
    #: Weights, classes and quotas of tenants; None: tenants are ignored.
    tenants: TenancySettings | None = None
    #: The models and their machines; None: every machine serves all.
    models: ModelsSettings | None = None
    seed: int = 0

    def cache_of(self, machine: int) -> CacheSettings:
        """Return the cache settings of a machine, in the sizes of its model."""
        kv = self.machines[machine].kv
        if kv is None:
            return self.cache
        return replace(self.cache, kv_bytes_per_token=kv[0], num_layers=kv[1])

    def in_tokens(self) -> ClusterSettings:
        """Return the same cluster with blocks of one token and the same capacity in tokens."""
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
