"""SGLang's own Scheduler over its tree and HiCache, made for ``sglang_schedules``.

Real: the event loops, the passes, batches, the adder of prompts, the results of batches, the tree, the controller's
queues. Stood in for: torch, pools (integer counters), sampling, metrics, ranks, other kinds of models.
"""

from __future__ import annotations

import sys
from array import array
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from engine_oracles import sglang_stand_ins, sglang_storage, sglang_threads, sglang_tree, stubs
from engine_oracles.streams import tokens_of
from engine_oracles.stubs import Fields, Real, Record

_SRT = "sglang.srt."
_PARTS = "managers.scheduler_components."
REAL = (
    sglang_tree.REAL
    | sglang_storage.REAL
    | frozenset(
        _SRT + name
        for name in (
            "environ",
            "managers.schedule_batch",
            "managers.schedule_policy",
            "managers.scheduler",
            _PARTS + "batch_result_processor",
            _PARTS + "new_token_ratio_tracker",
            "mem_cache.allocation",
            "mem_cache.allocator.base",
            "mem_cache.common",
            "mem_cache.memory_pool",
            "mem_cache.prefill_budget",
            "utils.poll_timer",
        )
    )
)
_PACKAGES = ("managers", "managers.scheduler_components", "mem_cache", "mem_cache.allocator")
#: Packages of which nothing is used.
_ABSENT = (
    "torch",
    "sglang",
    "triton",
    "zmq",
    "psutil",
    "setproctitle",
    "tqdm",
    "orjson",
    "fastapi",
    "requests",
)


class Aborted(Exception):
    """The pool does not hold the last running request, which the engine aborts."""


def load(wheel: Path) -> Real:
    """Import the classes of an unpacked wheel; everything else of it, and torch, is stood in for."""
    packages = [_SRT + name for name in _PACKAGES]
    stubs.name_packages(wheel, "sglang", "sglang.srt", *packages, *sglang_storage.PACKAGES)
    stubs.name_packages(wheel, "sglang.srt.utils", kind=stubs.StubModule)
    sys.path.append(str(wheel))
    finder = stubs.install(_ABSENT, REAL)
    torch: Any = import_module("torch")
    torch.tensor = lambda values, *_, **__: stubs.tensor(values)
    torch.zeros = lambda shape, **_: np.zeros(shape, np.int64).view(stubs.Tensor)
    torch.full = lambda shape, value, **_: np.full(shape, value, np.int64).view(stubs.Tensor)
    torch.is_tensor = lambda _: False
    names = {
        "allocation": "mem_cache.allocation",
        "batch": "managers.schedule_batch",
        "memory_pool": "mem_cache.memory_pool",
        "policy": "managers.schedule_policy",
        "ratio": _PARTS + "new_token_ratio_tracker",
        "results": _PARTS + "batch_result_processor",
        "scheduler": "managers.scheduler",
        "unified": "mem_cache.unified_radix_cache",
        "allocator": "mem_cache.allocator.base",
        "hybrid": "mem_cache.hybrid_cache.hybrid_cache_controller",
        "common": "mem_cache.common",
    }
    if find_spec(_SRT + "utils.poll_timer"):
        names["poll_timer"] = "utils.poll_timer"
    real = Real(**{name: import_module(_SRT + at) for name, at in names.items()}, stubbed=finder.stubbed)
    real.storage = sglang_storage.load()
    _of_other_kinds(real)
    real.__dict__.update(vars(sglang_tree.classes()))
    return real


def _of_other_kinds(real: Real) -> None:
    """Let every question about another kind of model, pool or role be answered with no."""
    for module in (
        real.policy,
        real.allocation,
        real.memory_pool,
        real.unified,
        real.batch,
        real.results,
        real.hybrid,
    ):
        for name, value in list(vars(module).items()):
            if isinstance(value, stubs.Anything) and name.endswith(("Allocator", "Pool", "Worker")):
                setattr(module, name, type(name, (), {}))
    one = lambda *_: 1  # noqa: E731
    for module in (real.policy, real.allocation, real.common, real.unified):
        module.page_interleave_shard_size = one
    real.common.ceil_align = lambda count, unit: -(-count // unit) * unit
    real.allocation.write_cache_indices = lambda *_: None
    real.common.get_spec = lambda: Fields(speculative_algorithm=None)
    for module in (real.scheduler, real.policy, real.batch, real.common, real.results):
        module.get_disagg = lambda: Fields(
            disaggregation_mode="null", disaggregation_decode_enable_offload_kvcache=False
        )
    mode = type("ForwardMode", (), {})
    for name in ("EXTEND", "DECODE", "MIXED"):
        setattr(mode, name, sglang_stand_ins.Mode(name))
    real.batch.ForwardMode = real.scheduler.ForwardMode = mode
    real.scheduler.DisaggregationMode = Fields(NULL="null", PREFILL="prefill", DECODE="decode")
    # their other bases are stand-ins, which are false
    real.batch.ScheduleBatch.__bool__ = real.batch.Req.__bool__ = lambda _: True
    real.results.SchedulerBatchResultProcessor._get_prefill_hidden_capture_mode = staticmethod(
        lambda *_: None
    )
    real.batch.num_beam_member_rows = lambda _: 0
    real.batch.beam_retraction_order = lambda order, _: order
    real.batch.get_batch_return_hidden_states_mode = lambda _: sglang_stand_ins.Captured()


def configure(real: Real, engine: Any) -> None:
    """Set the values of the engine's configuration that decide, and its clock."""
    asked = engine.asked
    own = asked.settings
    if asked.storage is not None:
        clock = lambda: Fraction(engine.now, 10**9)  # noqa: E731
        for timed in (getattr(real, "poll_timer", None), real.hybrid, real.unified):
            if timed:
                timed.time = Fields(perf_counter=clock, monotonic=clock)
    memory = Fields(
        hicache_write_policy=asked.write_policy if asked.host_pages else None,
        hicache_host_memory_mode="cache",
        radix_eviction_policy=asked.strategy,
        enable_hierarchical_cache=asked.host_pages > 0,
        enable_flexkv=False,
        enable_hisparse=False,
        hicache_storage_backend=None,
        hicache_storage_prefetch_retry_poll_interval=8,
        hicache_storage_prefetch_retry_max_attempts=8,
    )
    schedule = Record(
        schedule_conservativeness=own.schedule_conservativeness,
        schedule_policy=own.schedule_policy,
        schedule_low_priority_values_first=True,
    )
    # requests that leave at once come back in the order in which they were chosen
    real.policy.set = sglang_stand_ins.Ordered
    for module in (real.scheduler, real.policy, real.batch, real.unified, real.results):
        module.get_memory, module.get_schedule = (lambda: memory), (lambda: schedule)
    real.ratio.get_schedule = lambda: schedule
    real.scheduler.get_parallel = lambda: Fields(pp_max_micro_batch_size=own.max_num_seqs, dcp_enabled=False)
    real.common.get_serving = lambda: Fields(strip_thinking_cache=False)


def scheduler(engine: Any) -> Any:
    """Return the wheel's scheduler over its tree and controller."""
    real, asked = engine.real, engine.asked
    own, page = asked.settings, asked.page
    pool = sglang_stand_ins.pool(real, page, asked.pages * page)
    host = sglang_stand_ins.Host(asked.host_pages * page, page) if asked.host_pages else None
    rows = real.memory_pool.ReqToTokenPool.__new__(real.memory_pool.ReqToTokenPool)
    longest = int((engine.trace.input_tokens + engine.trace.output_tokens).max()) + 2
    rows.size, rows._alloc_size, rows.device = own.max_num_seqs, own.max_num_seqs + 1, "cpu"
    rows._aux_cache = rows._on_alloc_rows = None
    rows.req_to_token = np.zeros((rows._alloc_size, longest), np.int64).view(stubs.Tensor)
    rows.free_slots = list(range(1, rows._alloc_size))
    rows.req_generation = np.zeros(rows._alloc_size, np.int64)
    rows.alloc_aux_to_lengths = lambda **_: None
    controller = _controller(real, engine, pool, host) if host else None
    engine.controller = controller or Fields(ack_write_queue=(), ack_load_queue=())
    engine.cache = cache = _tree(engine, pool, host, controller)
    cache.req_to_token_pool = rows

    class Driven(real.scheduler.Scheduler):  # type: ignore[name-defined,misc]
        def ingest_requests(self) -> None:
            engine.ingest()

        def run_batch(self, batch: Any) -> Any:
            return engine.run_batch(batch)

        def process_batch_result(self, batch: Any, result: Any) -> None:
            engine.results(batch, result)

        def on_idle(self) -> None:
            if not self.waiting_queue:
                self.new_token_ratio_tracker.reset()

        send_abort_output = _aborted

        def publish_load_snapshot(self, force: bool = False) -> None: ...

        def launch_batch_sample_if_needed(self, *_: Any) -> None: ...

    class Adder(real.policy.PrefillAdder):  # type: ignore[name-defined,misc]
        def preempt_to_schedule(self, req: Any) -> bool:
            before = len(self.preempt_list)
            can = bool(super().preempt_to_schedule(req))
            engine.counts["preempted"] += len(self.preempt_list) - before
            return can

    s = object.__new__(Driven)
    by_priority = own.queue_order == "priority"
    none = dict.fromkeys(
        (
            "_pending_chunked_abort_req",
            "chunked_req",
            "decode_offload_manager",
            "dllm_config",
            "dynamic_chunk_sizer",
            "hisparse_coordinator",
            "last_batch",
            "min_free_slots_delayer",
            "truncation_align_size",
        )
    )
    values = none | dict(
        _prefill_decode_interval_remaining=0,
        beam_coordinator=Fields(pending_member_rows=lambda _: 0),
        chunked_prefill_size=own.max_num_batched_tokens,
        disaggregation_mode="null",
        dp_attn_adapter=Fields(
            maybe_prepare_mlp_sync_batch=lambda batch, **_: batch,
            maybe_convert_decode_to_extend=lambda batch: batch,
        ),
        enable_hicache_storage=asked.storage is not None,
        enable_hierarchical_cache=asked.host_pages > 0,
        enable_lmcache=False,
        enable_overlap=own.async_scheduling != "none",
        enable_priority_preemption=by_priority and own.priority_preemption is not None,
        enable_priority_scheduling=by_priority,
        priority_scheduling_preemption_threshold=own.priority_preemption,
        get_prefill_adder_class=lambda: Adder,
        ipc_channels=Fields(send_to_tokenizer=Fields(send_output=_aborted)),  # before 0.5.23
        is_mixed_chunk=own.enable_mixed_chunk,
        max_prefill_bs=0,
        max_prefill_tokens=own.max_prefill_tokens,
        max_running_requests=own.max_num_seqs,
        metrics_reporter=Record(),
        model_config=Fields(is_encoder_decoder=False, vocab_size=1 << 40),
        new_token_ratio_tracker=real.ratio.NewTokenRatioTracker.from_config(),
        ngram_embedding_manager=Fields(prepare_for_forward=lambda batch, **_: batch),
        page_size=page,
        policy=real.policy.SchedulePolicy(
            own.schedule_policy, cache, asked.host_pages > 0, by_priority, True
        ),
        prefill_decode_interval=0,
        processed_tokens_counter=0,
        req_to_token_pool=rows,
        result_queue=[],
        running_batch=real.batch.ScheduleBatch(reqs=[], batch_is_full=False),
        spec_algorithm=Fields(is_none=lambda: True),
        token_to_kv_pool_allocator=pool,
        tree_cache=cache,
        waiting_queue=[],
        # every request is taken
        _abort_on_queued_limit=lambda _: False,
        _set_or_validate_priority=lambda _: True,
    )
    for name, value in values.items():
        setattr(s, name, value)
    s.batch_result_processor = _results(real, s)
    return s


def _aborted(*_: Any) -> None:
    raise Aborted


def _results(real: Real, scheduler: Any) -> Any:
    """Return the part of the scheduler that processes the results of batches."""
    made = real.results.SchedulerBatchResultProcessor
    own = dict.fromkeys(made.__dataclass_fields__, stubs.Anything())
    own |= dict(
        is_generation=True,
        enable_overlap=scheduler.enable_overlap,
        enable_overlap_mlx=False,
        token_to_kv_pool_allocator=scheduler.token_to_kv_pool_allocator,
        tree_cache=scheduler.tree_cache,
        req_to_token_pool=scheduler.req_to_token_pool,
        metrics_reporter=sglang_stand_ins.Reporter(),
        beam_coordinator=Fields(commit_decode=lambda _: set()),
        model_worker=Fields(),
    )
    return made(**own)


def _controller(real: Real, engine: Any, pool: Any, host: Any) -> Any:
    """Return the wheel's controller with its queues; a transfer is a number of tokens."""

    class Controller(real.hybrid.HybridCacheController):  # type: ignore[name-defined,misc]
        def _move_write_operation(self, op: Any) -> Any:
            return op.host_indices, op.device_indices, None

        def _move_op_indices(self, op: Any) -> Any:
            return op.host_indices, op.device_indices, None

        def _l2_transfers(self, host_indices: Any, *_: Any) -> list[int]:
            engine.counts["copies"] += 1
            return [len(host_indices)]

        _l2_load_transfers = _l2_transfers

        def _num_tokens_by_pool(self, op: Any) -> None: ...

        def _transfer_num_bytes(self, op: Any) -> int:
            return 0

        def _uses_shared_host_domain(self, *_: Any) -> bool:
            return False

        def _resolve_device_transfers(self, *_: Any, **__: Any) -> None: ...

    c = object.__new__(Controller)
    c.write_policy, c.mem_pool_host, c.mem_pool_device_allocator = engine.asked.write_policy, host, pool
    c.write_queue, c.load_queue, c.ack_write_queue, c.ack_load_queue = [], [], [], []
    c.load_fence_stream = c.write_fence_stream = engine.forward
    c.l2_transfer_engine, c.transfer_layer_id_max, c.enable_storage = engine.copies, 1, False
    event = Fields(start_event=Fields(record=lambda: None), complete=None)
    c.layer_done_counter = Fields(update_producer=lambda: 0, events=[event])
    return c


def _tree(engine: Any, pool: Any, host: Any, controller: Any) -> Any:
    """Return the wheel's unified tree with its host."""
    cache = sglang_tree.unified(engine.real, engine.asked.strategy, pool, host, controller)
    cache.pp_size, cache.tp_world_size, cache.disable = 1, 1, not engine.asked.enabled
    cache.enable_storage_metrics, cache.work_list, cache.decoder_swa_bounded_replay = False, [], None
    cache.session = Fields(
        try_match_prefix=lambda _: None, try_checkpoint=lambda *_, **__: False, borrowed_slot=lambda _: None
    )
    # sessions and metrics, of which there are none
    for name in (
        "_all_reduce",
        "claim_kv_row",
        "maybe_hand_to_session",
        "on_release",
        "pretty_print",
        "update_eviction_metrics",
    ):
        setattr(cache, name, lambda *_, **__: None)
    cache.swa_reprefill_tail_tokens = lambda _=None: 0
    cache._storage_prefetch_wait, cache._storage_prefetch_hit_remaining_by_reqid = {}, {}
    if engine.asked.storage is not None:
        engine.threads = sglang_threads.Threads(engine, cache, controller)
    cache.evict_host = lambda need: _evicted(engine, cache, need)
    return cache


def _evicted(engine: Any, cache: Any, need: int) -> int:
    """Evict from the host, and count where too little can go, so that a write is refused."""
    freed = int(type(cache).evict_host(cache, need))
    engine.counts["refused writes"] += freed < need
    return freed


def request(engine: Any, number: int) -> Any:
    """Return a request as the scheduler has it."""
    trace = engine.trace
    n, answer = int(trace.input_tokens[number]), max(int(trace.output_tokens[number]), 1)
    sampling = Record(max_new_tokens=answer, ignore_eos=False, stop_strs=[], stop_regex_strs=[])
    made = engine.real.batch.Req(str(number), "", array("q", tokens_of(trace, number, n)), sampling)
    made.time_stats = sglang_stand_ins.Times(engine)
    made.priority = int(trace.priority[number]) if len(trace.priority) else None
    made.update_finish_state = lambda accepted=1: _ends(engine, made, answer)
    return made


def _ends(engine: Any, req: Any, answer: int) -> None:
    """End a request at its length; the tokens of an answer are its own."""
    req.output_ids[-1] = -1 - int(req.rid)
    if len(req.output_ids) >= answer:
        req.finished_reason = engine.real.batch.FINISH_LENGTH(length=answer)
        req.finished_len = answer
