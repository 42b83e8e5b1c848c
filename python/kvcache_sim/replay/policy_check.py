"""``kvsim policies check``: random traces against the contract, then a comparison with LRU and Belady.

A whole trace goes through a plug-in, compared with the upper bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import KvsimError, TraceError, UsageError
from kvcache_sim.base.rng import stream
from kvcache_sim.base.tiers import COMPUTE, TIERS
from kvcache_sim.policies.plugins.host import PolicyTier
from kvcache_sim.policies.plugins.load import Plugin
from kvcache_sim.policies.plugins.open import PolicyMaker, open_policy
from kvcache_sim.policies.plugins.views import TierView
from kvcache_sim.policies.plugins.watchdog import watched
from kvcache_sim.replay.policy_misses import explained
from kvcache_sim.replay.prompt_blocks import PromptBlocks, blocks_of_prompts, hit_tokens_sha256
from kvcache_sim.replay.request import ReplayRequest, ReplayResult, refuse_lower_tiers
from kvcache_sim.replay.upper_bounds import share, upper_bounds
from kvcache_sim.workload.trace import Trace


def replay_plugin(request: ReplayRequest, variant: str) -> ReplayResult:
    """Replay a trace against a plug-in and return its figures.

    Raises ``UsageError`` for a plug-in that does not load or fails its self-test (exit 2), and
    ``PolicyViolation`` where it breaks its promise on this trace (exit 1).
    """
    for wrong, flag in (
        (request.discipline == "flat", "--flat"),
        (request.touch_from == "root", "--order root"),
    ):
        if wrong:
            raise UsageError("plug-ins are called leaf first, deepest block first", where=flag)
    refuse_lower_tiers(request, variant)
    if request.store_threshold:
        raise UsageError(f"has no effect with --policy {variant}", where="--store-threshold")
    if request.capacity_blocks < 1:
        raise UsageError("capacity holds no block", where="--capacity", got=str(request.capacity_blocks))
    prompts = blocks_of_prompts(request)
    plugin, maker = open_policy(variant)
    try:
        tops = upper_bounds(prompts, request.capacity_blocks)
    except ValueError as error:
        raise TraceError(str(error), where=request.trace.source) from None
    tier, hits, missed = run_plugin(plugin, maker, prompts, request.capacity_blocks, request.window)
    found = share(prompts, hits)
    overlap = {"window": request.window, "not_admitted_blocks": tier.not_admitted} if request.window else {}
    possible = tops["belady"]["hit_blocks"]
    return {
        "policy": variant,
        "plugin": {"name": plugin.name, "source": plugin.source, "source_sha256": plugin.source_sha256},
        "n_requests": len(request.trace),
        "block_size": request.block_size_tokens,
        "capacity_blocks": request.capacity_blocks,
        "queried_tokens": int(request.trace.input_tokens.sum()),
        "queried_blocks": prompts.references,
        **found,
        "evictions": len(tier.evictions),
        "resident_blocks": len(tier.records),
        "refusals": tier.refusals,
        "redirects": tier.redirects,
        "holes": tier.holes,
        "per_request_hit_tokens_sha256": hit_tokens_sha256(prompts, hits),
        **overlap,
        **explained(request, prompts, plugin.name, hits, missed),
        "upper_bounds": tops,
        "share_of_possible": found["hit_blocks"] / possible if possible else None,
    }


def run_plugin(
    plugin: Plugin, maker: PolicyMaker, prompts: PromptBlocks, capacity_blocks: int, window: int = 0
) -> tuple[PolicyTier, NDArray[np.uint32], NDArray[np.int64]]:
    """Run every request of a trace through a fresh policy.

    Returns the tier, the hits in blocks, and the known blocks that were missed, as ``explained`` takes them.
    """
    arrival_ns: list[Any] = prompts.trace.arrival_ns.tolist()
    hits = np.zeros(len(prompts.trace), np.uint32)
    known: list[int] = prompts.known.tolist()
    missed: list[tuple[int, int, int]] = []
    with watched(plugin.name) as dog:
        policy = maker(TierView(TIERS[COMPUTE], capacity_blocks, prompts.block_size_tokens))
        tier = PolicyTier(policy, plugin.name, capacity_blocks, dog, window)
        for i, path in enumerate(prompts.numbered_paths()):
            dog.calls += 1
            gone = [block for block in path[: known[i]] if block not in tier.records]
            missed += [(i, tier.evicted_by.get(block, -1), 1) for block in gone]
            hits[i] = tier.request(path, arrival_ns[i])
    return tier, hits, np.array(missed, np.int64)


ROUNDS = 40
_COMPARE_REQUESTS = 1_500
_COMPARE_CAPACITIES = (50, 200, 800)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Shares of blocks found at one capacity."""

    capacity_blocks: int
    policy: float
    lru: float
    belady: float


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a check that found no breach; a breach of the contract raises."""

    plugin: Plugin
    rounds: int
    requests: int
    refusals: int
    comparisons: tuple[Comparison, ...]


def check_policy(text: str, seed: int, rounds: int = ROUNDS) -> CheckReport:
    """Fuzz a plug-in and compare it with LRU and Belady on a built-in trace.

    A round is a random prefix tree of requests on a tier of random size; on a violation its seed is named.
    Raises ``UsageError`` (exit 2) where the plug-in does not pass its self-test, ``PolicyViolation`` (exit 1)
    where a round breaks the contract.
    """
    plugin, maker = open_policy(text)
    requests = refusals = 0
    for k in range(rounds):
        draw = stream(seed, f"policies.check.{k}")
        trace = branching_trace(draw, int(draw.integers(5, 120)))
        try:
            prompts = _prompts(trace)
            tier, hits, _ = run_plugin(plugin, maker, prompts, int(draw.integers(1, 60)))
        except KvsimError as error:
            error.hint = f"{error.hint}; " * bool(error.hint) + f"found in round {k} of --seed {seed}"
            raise
        requests += len(hits)
        refusals += tier.refusals
    return CheckReport(plugin, rounds, requests, refusals, tuple(_compare(plugin, maker)))


def branching_trace(draw: np.random.Generator, requests: int) -> Trace:
    """Return requests that share a prefix with an earlier request, then diverge; blocks of 16 tokens."""
    rows: list[list[int]] = []
    fresh = 0
    for _ in range(requests):
        # recent requests are continued more often, the first always a little: sessions, system prompts
        back = min(len(rows), 1 + int(draw.exponential(12)))
        base = rows[-back] if rows and draw.random() < 0.9 else rows[0] if rows else []
        keep = int(draw.integers(0, len(base) + 1))
        new = int(draw.integers(1, 7))
        rows.append(base[:keep] + list(range(fresh, fresh + new)))
        fresh += new
    lengths = np.array([len(row) for row in rows], np.int64)
    n = len(rows)
    return Trace(
        arrival_ns=np.arange(n, dtype=np.int64) // 3 * 1_000_000,
        input_tokens=lengths * 16,
        output_tokens=np.ones(n, np.int64),
        id_offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        block_ids=np.array([b for row in rows for b in row], np.uint32),
        block_size=16,
        session=np.full(n, -1, np.int32),
        turn=np.zeros(n, np.int32),
        think_ns=np.full(n, -1, np.int64),
        is_conversational_turn=np.zeros(n, np.bool_),
        source="built-in",
    )


def _prompts(trace: Trace) -> PromptBlocks:
    return blocks_of_prompts(ReplayRequest(trace, 16, 1, last_partial="keep"))


def _compare(plugin: Plugin, maker: PolicyMaker) -> list[Comparison]:
    prompts = _prompts(branching_trace(stream(0, "policies.check.compare"), _COMPARE_REQUESTS))
    rows = []
    for capacity in _COMPARE_CAPACITIES:
        _, hits, _ = run_plugin(plugin, maker, prompts, capacity)
        rates = [
            share(prompts, found)["block_hit_rate"]
            for found in (
                hits,
                prompts.native.recency(capacity, "tail").hits,
                prompts.native.belady(capacity).hits,
            )
        ]
        rows.append(Comparison(capacity, *rates))
    return rows
