"""SGLang's own SchedulePolicy and PrefillAdder on its own RadixCache: the requests that a pass admits, their
tokens and their order.

Each stream fills a tree, lets some requests run and others wait, and compares one pass over the queue with
that of the core's scheduler (``machine/sglang``). Stood in for: torch, pools (integer counters), the
scheduler around the pass (re-enacted). Run as a program, since its stand-ins are others than those of
``sglang_tree``: FOLDER STREAMS FIRST.
"""

from __future__ import annotations

import logging
import random
import sys
from array import array
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kvcache_sim import _core
from kvcache_sim.cache.settings import CacheSettings, TierSettings
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.simulation import Simulation
from support.clusters import cluster

from engine_oracles import sglang_older, stubs
from engine_oracles.streams import compare_streams, stream, tokens_of
from engine_oracles.stubs import Fields, Real, Rows

_CACHE, POLICY = "sglang.srt.mem_cache.", "sglang.srt.managers.schedule_policy"
_OF_CACHE = (
    "base_prefix_cache",
    "cache_init_params",
    "common",
    "evict_policy",
    "prefill_budget",
    "radix_cache",
    "utils",
)
REAL = frozenset([POLICY, *(_CACHE + name for name in _OF_CACHE)])
STRATEGIES = ("lru", "lfu", "fifo", "mru", "filo", "slru")
#: A request: its number, tokens of its prompt and of its answer, and those of the answer that are out.
Given = tuple[int, int, int, int]


def load(wheel: Path) -> Real:
    """Import the classes; queries about other kinds of models return False."""
    logging.disable(logging.WARNING)
    stubs.name_packages(wheel, "sglang", "sglang.srt", "sglang.srt.mem_cache", "sglang.srt.managers")
    sys.path.append(str(wheel))
    finder = stubs.install(("torch", "sglang", "triton"), REAL)
    from sglang.srt.managers import schedule_policy
    from sglang.srt.mem_cache import base_prefix_cache, cache_init_params, common, radix_cache

    is_older = find_spec(_CACHE + "prefill_budget") is None
    prefill_budget = None if is_older else import_module(_CACHE + "prefill_budget")

    no = Fields(get=lambda: False)
    yes = Fields(get=lambda: True)
    for name in dir(schedule_policy):
        if name.endswith("Allocator") or name == "UnifiedRadixCache":
            setattr(schedule_policy, name, type(name, (), {}))
    schedule_policy.page_interleave_shard_size = lambda _: 1
    schedule_policy.envs = Fields(
        SGLANG_ENABLE_WAITING_PREFIX_REFRESH=yes, SGLANG_RADIX_FORCE_MISS=no, SGLANG_EXACT_CHUNK_FILL=no
    )
    return Real(
        policy=schedule_policy,
        base=base_prefix_cache,
        init=cache_init_params,
        common=common,
        budget=prefill_budget,
        radix=radix_cache,
        stubbed=finder.stubbed,
    )


class Pool:
    """An allocator's free tokens and the queries of an admission."""

    def __init__(self, real: Real, page: int, tokens: int) -> None:
        self.real, self.page_size, self.free_tokens, self.device = real, page, tokens, "cpu"

    def available_size(self) -> int:
        return self.free_tokens

    def free(self, indices: Any) -> None:
        self.free_tokens += len(indices)

    def free_segment(self, indices: Any, start_pos: int = 0) -> None:
        self.free_tokens += len(indices)

    def request_slot_reserve(self, **_: Any) -> int:
        return 0

    def create_prefill_budget(self, tree: Any, *, num_mixed_decode_tokens: int = 0) -> Any:
        return self.real.budget.PrefillBudget(self, tree, num_mixed_decode_tokens=num_mixed_decode_tokens)


class Req:
    """A request as the policy, the adder and the tree read it."""

    extra_key = cache_salt = lock = last_node = session = kv_rotation_base = extend_end = None
    host_hit_length = swa_host_hit_length = auxiliary_swa_host_hit_length = prefix_len = (
        storage_hit_length
    ) = 0
    mamba_host_hit_length = swa_branching_seqlen = 0
    mamba_branching_seqlen = session_id = priority = best_match_node = cache_request_handle = None
    skip_radix_cache_insert, retracted_stain = False, True

    def __init__(self, trace: Any, request: int, out: int) -> None:
        self.rid, n = str(request), int(trace.input_tokens[request])
        self.request = request
        tokens = tokens_of(trace, request, n + out)
        self.origin_input_ids, self.output_ids = array("q", tokens[:n]), array("q", tokens[n:])
        self.full_untruncated_fill_ids = self.origin_input_ids + self.output_ids
        answer = max(int(trace.output_tokens[request]), 1)
        self.sampling_params = Fields(max_new_tokens=answer, ignore_eos=False)
        self.kv = Fields(
            holds_kv=False,
            holds_mamba=True,
            req_pool_idx=0,
            cache_protected_len=0,
            cache_inserted_len=0,
            mamba_pool_idx=None,
            swa_evict_floor=0,
            mamba_last_track_seqlen=None,
        )

    @property
    def extend_len(self) -> int:
        return self.extend_end - self.prefix_len

    def needs_host_load_back(self) -> bool:
        return False

    def finished(self) -> bool:
        return False

    def _compute_max_prefix_len(self, tokens: int) -> int:
        return tokens - 1


class Theirs:
    """The wheel's cache with its pool."""

    def __init__(self, real: Real, page: int, tokens: int, strategy: str) -> None:
        self.real, self.page, self.pool = real, page, Pool(real, page, tokens)
        params = real.init.CacheInitParams(
            disable=False,
            req_to_token_pool=None,
            token_to_kv_pool_allocator=self.pool,
            page_size=page,
            eviction_policy=strategy,
        )
        self.cache = real.radix.RadixCache(params)
        sglang_older.as_newer(self.cache)
        for name in ("discard_storage_prefetch_accounting", "finish_storage_prefetch_admission"):
            setattr(self.cache, name, lambda *_, **__: None)

    def look_up(self, req: Req) -> None:
        tokens = req.full_untruncated_fill_ids
        self.real.common.match_kv_cache(req, self.cache, tokens, max_prefix_len=len(tokens) - 1)
        req.kv.cache_protected_len = req.prefix_len

    def evict(self, tokens: int) -> None:
        if tokens > self.pool.free_tokens:
            self.cache.evict(self.real.base.EvictParams(num_tokens=tokens - self.pool.free_tokens))

    def take(self, req: Req, end: int) -> None:
        paged = lambda tokens: -(-tokens // self.page) * self.page  # noqa: E731
        self.pool.free_tokens -= paged(end) - paged(req.prefix_len)
        req.kv.holds_kv = True

    def check_in(self, req: Req, tokens: int) -> None:
        self.cache.req_to_token_pool = Rows(len(req.full_untruncated_fill_ids))
        self.cache.checkpoint(req, up_to=tokens)
        req.prefix_len = tokens

    def run(self, req: Req, ends: bool) -> None:
        """Compute a request's known tokens alone, and finish the request if ``ends``."""
        end, slack = len(req.full_untruncated_fill_ids), self.page if self.page > 1 else 0
        self.look_up(req)
        req.lock = self.cache.lock(req.last_node)
        self.evict(end - req.prefix_len + slack)
        self.take(req, end)
        self.check_in(req, end)
        if ends:
            self.pool.free_tokens += -(-end // self.page) * self.page - req.kv.cache_protected_len
            self.cache.unlock(req.lock)

    def one_pass(self, waiting: list[Req], running: list[Req], ask: Ask) -> tuple[Any, ...]:
        """Order the queue and admit from it (``_get_new_batch_prefill_raw``)."""
        policy_module = self.real.policy
        policy_module.get_memory = lambda: Fields(radix_eviction_policy=ask.strategy)
        policy_module.get_disagg = lambda: Fields(disaggregation_mode="null")
        policy = policy_module.SchedulePolicy(
            ask.replica_settings.schedule_policy, self.cache, False, False, False
        )
        policy.calc_priority(waiting, None)
        order = [req.request for req in waiting]
        batch = Fields(reqs=running)
        mixed = len(running) if ask.replica_settings.enable_mixed_chunk else 0
        adder = policy_module.PrefillAdder(
            self.page,
            self.cache,
            self.pool,
            batch,
            ask.ratio,
            ask.replica_settings.max_prefill_tokens,
            ask.replica_settings.max_num_batched_tokens,
            mixed,
        )
        results = policy_module.AddReqResult
        most = ask.replica_settings.max_num_seqs - len(running)
        full = False
        for req in waiting:
            if adder.budget_state() == results.OTHER:
                break
            full = full or len(adder.can_run_list) >= most
            if full:
                break
            self.look_up(req)
            result = adder.add_one_req(req, has_chunked_req=False, truncation_align_size=None)
            if result == results.NO_TOKEN:
                full = bool(adder.can_run_list or running)
            if result != results.CONTINUE:
                break
        chosen = [(req.request, req.prefix_len, req.extend_end) for req in adder.can_run_list]
        chunked = None if adder.new_chunked_req is None else adder.new_chunked_req.request
        return order, chosen, chunked, full


class Ask:
    """Input of one stream: settings, the share of answers, and counts of finished and running requests."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.trace, self.page = stream(draw), draw.choice([1, 4, 16])
        longest = int((self.trace.input_tokens + self.trace.output_tokens).max())
        self.ended = draw.randint(0, len(self.trace) // 2)
        self.running = draw.randint(0, 6)
        self.pages = (longest * draw.choice([2, 3, 6]) + 4 * self.page) // self.page
        self.strategy, self.ratio = draw.choice(STRATEGIES), draw.choice([0.098, 0.35, 0.7, 1.0])
        self.replica_settings = ReplicaSettings(
            max_num_batched_tokens=draw.choice([50, 200, 2048]),
            max_num_seqs=draw.choice([self.running + 2, 40]),
            scheduler="sglang",
            schedule_policy=draw.choice(["fcfs", "lpm", "dfs-weight", "lof"]),
            max_prefill_tokens=draw.choice([100, 16384]),
            enable_mixed_chunk=draw.random() < 0.3,
        )

    def replica(self) -> _core.Replica:
        """Return a new replica of the core with SGLang's scheduler and tree."""
        base = cluster((self.pages,))
        cache = CacheSettings(block_size_tokens=self.page, semantics="sglang", policy=self.strategy)
        tiers = (TierSettings("gpu", self.pages),)
        machine = replace(base.machines[0], replica=self.replica_settings, tiers=tiers)
        settings = replace(base, cache=cache, machines=(machine,))
        served: Any = Simulation(settings, self.trace, RunOptions()).replicas[0]
        core: _core.Replica = served.core
        return core

    def state(self) -> tuple[list[Given], list[Given], list[Given]]:
        """Return the finished, the running and the waiting requests."""
        lengths = zip(self.trace.input_tokens.tolist(), self.trace.output_tokens.tolist(), strict=True)
        given = [(r, prompt, answer, 0) for r, (prompt, answer) in enumerate(lengths)]
        runs = self.ended + self.running
        running = [(*g[:3], 1 if g[2] > 1 else 0) for g in given[self.ended : runs]]
        return given[: self.ended], running, given[runs:]


def compare(real: Real, seed: int) -> tuple[Any, Any]:
    """Return what this project and SGLang decide on a stream."""
    ask = Ask(seed)
    ended, running, waiting = ask.state()
    if not waiting:
        return (), ()
    runs, *ours = _core.sglang_pass(ask.replica(), ended, running, waiting, ask.ratio)
    theirs, reqs = Theirs(real, ask.page, ask.pages * ask.page, ask.strategy), []
    for request, *_ in ended:
        theirs.run(Req(ask.trace, request, 0), ends=True)
    for request, _, _, out in running[:runs]:
        theirs.run(req := Req(ask.trace, request, 0), ends=False)
        req.output_ids = array("q", [-1] * out)
        reqs.append(req)
    order, chosen, chunked, full = theirs.one_pass([Req(ask.trace, g[0], 0) for g in waiting], reqs, ask)
    admitted = {request for request, _, _ in chosen}
    return ours, [chosen, [r for r in order if r not in admitted], chunked, full]


def differs(real: Real, seed: int) -> str | None:
    """Return how a pass differs, None where it is equal."""
    ours, theirs = compare(real, seed)
    return f"{ours} {theirs}" if ours != theirs else None


if __name__ == "__main__":
    sys.exit(compare_streams("SGLang passes", load, differs, *sys.argv[1:4]))
