"""Marconi beside what it is measured by: a state every block, and its own states with plain LRU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kvcache_sim.errors import UsageError
from kvcache_sim.replay.papers.hybrid_cost import HybridCost
from kvcache_sim.replay.papers.leaf_cache import Asked, LeafCache, Lru
from kvcache_sim.replay.papers.marconi import Exchange, StateTree
from kvcache_sim.workload.trace import NO_SESSION, Trace

#: What is tried for alpha, and how many times the requests before the first eviction are tried with each.
ALPHAS = tuple(k / 10 for k in range(21))
TUNING = 5


@dataclass(frozen=True, slots=True)
class MarconiResult:
    """Shares of the prompts' whole blocks that were usable, in the second half of a trace."""

    requests: int
    #: Of a cache with a state for each block, which has so many; the others have as many bytes.
    capacity_blocks: int
    every_block: float
    branches_lru: float
    marconi: float
    alpha: float


def exchanges_of(trace: Trace) -> list[Exchange]:
    """Return the requests in order of arrival with prompt and answer in whole blocks.

    An answer's blocks are those that the trace names, or that the session's next prompt has in its place;
    where neither tells, the sequence ends with its prompt.
    """
    offsets, ids, size = trace.id_offsets.tolist(), trace.block_ids.tolist(), trace.block_size
    rows = [ids[start:end] for start, end in pairwise(offsets)]
    following: dict[int, list[int]] = {}
    found: list[Exchange | None] = [None] * len(rows)
    order = np.lexsort((np.arange(len(rows)), trace.turn, trace.arrival_ns)).tolist()
    for row in reversed(order):
        session, prompt = int(trace.session[row]), int(trace.input_tokens[row]) // size
        whole = (int(trace.input_tokens[row]) + int(trace.output_tokens[row])) // size
        named = int(trace.named_tokens[row]) // size if len(trace.named_tokens) else 0
        own = rows[row][: max(prompt, min(named, whole))]
        later = following.get(session, [])[:whole]
        told = later if len(later) > len(own) and later[: len(own)] == own else own
        found[row] = Exchange(prompt, told)
        if session != NO_SESSION:
            following[session] = rows[row]
    return [each for each in (found[row] for row in order) if each is not None]


def tuned(exchanges: Sequence[Exchange], capacity_bytes: int, block_tokens: int) -> tuple[list[int], float]:
    """Return the usable blocks of each request under Marconi's rule and the alpha that it settles on.

    Alpha is 0 until five times the requests before the first eviction have come after it; then it is the one
    that would have hit most of them, the smallest of equals. Before that eviction all are alike, so a trial
    begins with an empty cache.
    """
    cost = HybridCost()
    tree, hits, alpha = StateTree(capacity_bytes, block_tokens, cost), [], 0.0
    end: int | None = None
    for number, exchange in enumerate(exchanges):
        if number == end:
            seen, totals = exchanges[:end], []
            for trial in ALPHAS:
                other = StateTree(capacity_bytes, block_tokens, cost, trial)
                totals.append(sum(other.serve(each) for each in seen))
            alpha = tree.alpha = ALPHAS[totals.index(max(totals))]
        hits.append(tree.serve(exchange))
        if end is None and tree.evictions:
            end = number + 1 + TUNING * max(number, 1)
    return hits, alpha


def marconi_beside(trace: Trace, capacity_blocks: int) -> MarconiResult:
    """Return the hit rates of a state every block (LRU), of Marconi's states with LRU, and of Marconi.

    All serve the whole trace; the second half counts. Raises UsageError for a sequence that the cache cannot
    hold. Cost: up to 23 replays in Python.
    """
    if len(trace) < 2:
        raise UsageError("too few requests", where="TRACE", got=str(len(trace)), expected="2 or more")
    cost, exchanges = HybridCost(), exchanges_of(trace)
    capacity_bytes = capacity_blocks * (trace.block_size * cost.token_bytes + cost.state_bytes)
    dense, plain = (
        LeafCache(capacity_blocks, Lru()),
        StateTree(capacity_bytes, trace.block_size, cost),
    )
    every, lru = [], []
    for number, each in enumerate(exchanges):
        found = dense.serve(Asked(number, number, number, "", each.ids))
        every.append(min(found, each.prompt_blocks))
        lru.append(plain.serve(each))
    own, alpha = tuned(exchanges, capacity_bytes, trace.block_size)
    half = len(exchanges) // 2
    blocks = max(sum(each.prompt_blocks for each in exchanges[half:]), 1)
    dense_rate, lru_rate, rate = (sum(hits[half:]) / blocks for hits in (every, lru, own))
    return MarconiResult(len(exchanges) - half, capacity_blocks, dense_rate, lru_rate, rate, alpha)
