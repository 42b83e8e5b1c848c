"""``kvsim policies check``: random traces against the contract, then a comparison with LRU and Belady."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvcache_sim.errors import KvsimError
from kvcache_sim.policies.plugins.load import Plugin
from kvcache_sim.policies.plugins.open import PolicyMaker, open_policy
from kvcache_sim.replay.ceilings import share
from kvcache_sim.replay.plugin import run_plugin
from kvcache_sim.replay.prompt_blocks import PromptBlocks, blocks_of_prompts
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.rng import stream
from kvcache_sim.workload.trace import Trace

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
    """What a check found; it raises where the contract was broken."""

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
    """Return requests that follow an earlier one for a while, then go their own way; blocks of 16 tokens."""
    rows: list[list[int]] = []
    fresh = 0
    for _ in range(requests):
        # recent requests are followed more often, the first ones always a little: sessions and system prompts
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
