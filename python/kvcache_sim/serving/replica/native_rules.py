"""The rules of a replica in the core's format, with the checked methods of its plug-ins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kvcache_sim.base.tiers import KV_SOURCES
from kvcache_sim.base.values import Value
from kvcache_sim.cache.admission import ADMISSION, ADMISSIONS
from kvcache_sim.cache.fetch import FETCH, FETCHES
from kvcache_sim.cache.machine import Machine
from kvcache_sim.cache.pool import PoolNode
from kvcache_sim.cache.settings import MovementSettings
from kvcache_sim.cache.tier_rules import ReadsRules, TierRules, WriteCall, core_name, write_call
from kvcache_sim.serving.queue import ORDERS, QUEUE_ORDER, served_as
from kvcache_sim.serving.recorder import Recorder
from kvcache_sim.serving.settings import HandoverSettings, ReplicaSettings, Role

if TYPE_CHECKING:
    from kvcache_sim.serving.engine_rules import SglangRules, VllmRules


class PluginCall(Value):
    """A method of a plug-in whose return values are checked, and the class of its argument."""

    call: Callable[..., Any]
    view: type


class PluginRules(Value):
    """The plug-ins that the core calls for one machine, by kind; None: a built-in policy decides."""

    queue: PluginCall | None
    admission: PluginCall | None
    fetch: PluginCall | None
    prefetch: PluginCall | None
    #: By edge, from the GPU down.
    writes: tuple[WriteCall | None, ...]


def plugin_rules(machine: Machine, settings: ReplicaSettings) -> PluginRules:
    """Return the plug-ins of one machine."""
    admission = _admission(machine)
    return PluginRules(
        queue=_queue(settings),
        admission=admission,
        fetch=_fetch(machine),
        prefetch=_prefetch(machine),
        writes=tuple(map(write_call, machine.writes)),
    )


def _queue(settings: ReplicaSettings) -> PluginCall | None:
    if settings.queue_order in ("fcfs", *ORDERS):
        return None
    from kvcache_sim.serving.queue.order import Waiting

    return PluginCall(QUEUE_ORDER.make(settings.queue_order).key, Waiting)


def _admission(machine: Machine) -> PluginCall | None:
    name = machine.cache.admission
    if name in ADMISSIONS:
        return None
    policy = ADMISSION.make(name)
    if machine.tree is None:
        return None
    from kvcache_sim.cache.admission.policy import Finished

    return PluginCall(policy.kept_blocks, Finished)


def _fetch(machine: Machine) -> PluginCall | None:
    if machine.movement.fetch in FETCHES:
        return None
    from kvcache_sim.cache.fetch.policy import Part

    return PluginCall(FETCH.make(machine.movement.fetch).reuse, Part)


def _prefetch(machine: Machine) -> PluginCall | None:
    if machine.prefetch is None:
        return None
    from kvcache_sim.cache.prefetch.policy import Candidate

    return PluginCall(machine.prefetch.blocks, Candidate)


class HandoverRules(Value):
    """The rules of a hand-over source or target."""

    prefills: bool
    layer_by_layer: bool
    first_token_at_prefill: bool
    #: Index of "another machine" among the sources of KV.
    remote: int = len(KV_SOURCES) - 1

    @classmethod
    def of(cls, role: Role, handover: HandoverSettings) -> HandoverRules:
        """Return the rules of a machine with a role, in a disaggregated cluster."""
        return cls(
            prefills=role == "prefill",
            layer_by_layer=handover.transfer == "layer-by-layer",
            first_token_at_prefill=handover.first_token == "prefill",
        )


class PoolRules(Value):
    """The rules of a pool that machines share."""

    machine: int
    #: Index of "another machine" among the sources of KV.
    remote: int
    block_bytes: int
    layers: int
    layer_pipelining: bool

    @classmethod
    def of(cls, pool: PoolNode, movement: MovementSettings) -> PoolRules:
        """Return the rules of a pool."""
        layers, pipelining = max(1, pool.num_layers), movement.layer_pipelining
        return cls(pool.number, len(KV_SOURCES) - 1, pool.block_bytes, layers, pipelining)


class ClientTimes(Value):
    """The time from a client to the scheduler: a constant, and a time for each token of the prompt."""

    offset_ns: int
    token_ns: int


class ServingRules(Value):
    """The rules of a replica, apart from its batch."""

    machine: int
    client: ClientTimes
    max_num_seqs: int
    #: True if a request waits for a block that another request is computing.
    waits_for_duplicates: bool
    queue_order: str
    async_scheduling: str
    skips_full_prefill: bool
    discard_on_finish: bool
    admits_prompts_only: bool
    #: Blocks at the end of every hit that are computed again.
    lost_blocks: int
    #: True if blocks have a time to live.
    expires: bool
    #: Number of waiting requests whose blocks are protected from eviction.
    lookahead: int
    max_sessions: int | None
    session_ttl_ns: int | None
    #: Milestones in [start, end) are recorded; None: none are.
    record_window_ns: tuple[int, int] | None
    #: Names of the columns of a request's row, in order.
    request_columns: tuple[str, ...]
    #: Names of the sources of KV, fast to slow: rows of transfers number edges by them.
    sources: tuple[str, ...]
    #: Rules for reading other machines; None: it reads none.
    reads: ReadsRules | None
    tiers: TierRules
    #: CPU time per piece of a copy to or from the GPU, and the share of the GPU that the copy takes.
    copy_submit_ns: int
    copy_gpu_share: float
    #: Rules of vLLM's or SGLang's scheduler; None: the other's, or kvsim's own composes the steps.
    vllm: VllmRules | None = None
    sglang: SglangRules | None = None
    #: Rules of hand-overs; None: prompts stay on their machine.
    handover: HandoverRules | None = None
    #: Policies that are not built in.
    plugins: PluginRules | None = None


def serving_rules(
    machine: Machine, settings: ReplicaSettings, recorder: Recorder, handover: HandoverRules | None
) -> ServingRules:
    """Return the rules of one machine's replica."""
    cache = machine.cache
    return ServingRules(
        machine=machine.number,
        client=ClientTimes(settings.client_offset_ns, settings.client_offset_per_token_ns),
        max_num_seqs=settings.max_num_seqs,
        waits_for_duplicates=settings.duplicate_prefill == "wait",
        queue_order=core_name(served_as(settings.queue_order), settings.queue_order in ("fcfs", *ORDERS)),
        async_scheduling=settings.async_scheduling,
        skips_full_prefill=cache.full_hit == "skip-prefill",
        discard_on_finish=cache.discard_on_finish,
        admits_prompts_only=cache.admission == "prompt",
        lost_blocks=settings.lost_blocks,
        expires=machine.expires,
        lookahead=0 if machine.tree is None else cache.scheduler_aware_window,
        max_sessions=cache.session_view.max_sessions,
        session_ttl_ns=cache.session_view.ttl_ns,
        record_window_ns=recorder.window_ns,
        request_columns=recorder.row_columns,
        sources=KV_SOURCES,
        reads=ReadsRules.of(machine),
        tiers=TierRules.of(machine),
        copy_submit_ns=settings.copy_submit_ns,
        copy_gpu_share=settings.copy_gpu_share,
        vllm=_vllm_rules(machine, settings),
        sglang=_sglang_rules(settings),
        handover=handover,
        plugins=plugin_rules(machine, settings),
    )


def _vllm_rules(machine: Machine, settings: ReplicaSettings) -> VllmRules | None:
    if settings.scheduler != "vllm":
        return None
    from kvcache_sim.serving.engine_rules import vllm_rules

    return vllm_rules(settings, machine.store.occupancy(0).capacity_blocks)


def _sglang_rules(settings: ReplicaSettings) -> SglangRules | None:
    if settings.scheduler != "sglang":
        return None
    from kvcache_sim.serving.engine_rules import sglang_rules

    return sglang_rules(settings)
