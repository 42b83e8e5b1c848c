"""Policies of papers beside LRU on one trace: the figure that each paper claims, and what the paper says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvcache_sim.errors import UsageError
from kvcache_sim.replay.papers.cache_ttl import CacheTtl, best_ttl_s
from kvcache_sim.replay.papers.kvflow import KvFlow
from kvcache_sim.replay.papers.leaf_cache import Asked, LeafPolicy, Lru, Served, replay
from kvcache_sim.replay.papers.learned import BlockOracle
from kvcache_sim.replay.papers.tail_lru import TailLru
from kvcache_sim.replay.papers.workload_aware import WorkloadAware, profiles
from kvcache_sim.units import NS_PER_S
from kvcache_sim.workload.trace import NO_SESSION, Trace

#: Of T-LRU: blocks that the next prompt brings (Q̂) where no session tells; a request may leave twice as many
#: uncached (ξ).
NEXT_BLOCKS = 8
#: Of CacheTTL: what a session saves that is still there when its tool is done, in s (T·η + Reload).
GAIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Paper:
    """A policy of a paper: what it claims, the figure, and how it is made for a trace and a cache."""

    claim: str
    figure: str
    measure: Callable[[Served, int], float]
    #: Whether more of the figure is better.
    more: bool
    make: Callable[[list[Asked], list[Asked], int], LeafPolicy]


@dataclass(frozen=True, slots=True)
class PaperResult:
    """A figure under LRU and under a paper's policy, on the same requests and blocks."""

    name: str
    requests: int
    capacity_blocks: int
    lru: float
    policy: float

    @property
    def holds(self) -> bool:
        """Whether the sign is the paper's."""
        return self.policy > self.lru if PAPERS[self.name].more else self.policy < self.lru

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        paper = PAPERS[self.name]
        return {
            "policy": self.name,
            "requests": self.requests,
            "capacity_blocks": self.capacity_blocks,
            "figure": paper.figure,
            "lru": self.lru,
            "value": self.policy,
            "claim": paper.claim,
            "holds": self.holds,
        }


def asked_of(trace: Trace) -> list[Asked]:
    """Return the requests in order of arrival, ties in file order.

    A class is the first part of a session's name, up to a colon, and the turn; a request without a session is
    one by itself.
    """
    offsets, ids, sessions = trace.id_offsets.tolist(), trace.block_ids.tolist(), trace.session.tolist()
    found = []
    for number, row in enumerate(np.argsort(trace.arrival_ns, kind="stable").tolist()):
        session = sessions[row]
        name = trace.session_id(session) or ""
        kind = (name.partition(":")[0] if ":" in name else "", int(trace.turn[row]))
        own = len(trace) + row if session == NO_SESSION else session
        blocks = ids[offsets[row] : offsets[row + 1]]
        found.append(Asked(number, int(trace.arrival_ns[row]), own, kind, blocks))
    return found


def compare(name: str, trace: Trace, capacity_blocks: int) -> PaperResult:
    """Return a paper's figure beside LRU's, on the second half of a trace; the first is for profiles.

    Raises UsageError for a prompt that the cache cannot hold. Cost: two replays in Python, some
    50,000 blocks a second.
    """
    if len(trace) < 2:
        raise UsageError("too few requests", where="TRACE", got=str(len(trace)), expected="2 or more")
    asked = asked_of(trace)
    known, served = asked[: len(asked) // 2], asked[len(asked) // 2 :]
    paper, limit = PAPERS[name], 2 * next_blocks(known)
    values = [
        paper.measure(replay(served, capacity_blocks, policy), limit)
        for policy in (Lru(), paper.make(known, served, capacity_blocks))
    ]
    return PaperResult(name, len(served), capacity_blocks, *values)


def _workload_aware(known: list[Asked], served: list[Asked], capacity: int) -> LeafPolicy:
    del served
    seconds = max((known[-1].at_ns - known[0].at_ns) / NS_PER_S, 1e-9)
    distinct = len({block for asked in known for block in asked.ids})
    return WorkloadAware(profiles(known), life_s=capacity * seconds / max(distinct, 1))


def _tail_lru(known: list[Asked], served: list[Asked], capacity: int) -> LeafPolicy:
    del served, capacity
    most = next_blocks(known)
    return TailLru(2 * most, most)


def _cache_ttl(known: list[Asked], served: list[Asked], capacity: int) -> LeafPolicy:
    del capacity
    pauses: list[float] = []
    before: dict[int, int] = {}
    for asked in known:
        if asked.session in before:
            pauses.append((asked.at_ns - before[asked.session]) / NS_PER_S)
        before[asked.session] = asked.at_ns
    ttl_s = best_ttl_s(pauses, GAIN_S)
    last = {asked.session: asked.number for asked in served}
    return CacheTtl(lambda asked: 0.0 if last[asked.session] == asked.number else ttl_s)


def _kvflow(known: list[Asked], served: list[Asked], capacity: int) -> LeafPolicy:
    del known, capacity
    return KvFlow(served)


def _oracle(known: list[Asked], served: list[Asked], capacity: int) -> LeafPolicy:
    del known, capacity
    return BlockOracle(served)


def next_blocks(known: list[Asked]) -> int:
    """Return what nine of ten next turns bring at most, in blocks; NEXT_BLOCKS where no session goes on."""
    lengths: dict[int, int] = {}
    grown = []
    for asked in known:
        if asked.session in lengths:
            grown.append(len(asked.ids) - lengths[asked.session])
        lengths[asked.session] = len(asked.ids)
    return max(1, sorted(grown)[len(grown) * 9 // 10]) if grown else NEXT_BLOCKS


def _hits(served: Served, limit: int) -> float:
    del limit
    return served.hit_rate


def _over(served: Served, limit: int) -> float:
    return served.over(limit)


#: By name; each in a file of its own.
PAPERS: dict[str, Paper] = {
    "workload-aware": Paper(
        "hit rate +8.1 to +23.9 % of LRU's (KVCache in the wild, ATC'25)",
        "hit rate",
        _hits,
        True,
        _workload_aware,
    ),
    "tail-lru": Paper(
        "requests beyond their limit −38.9 % at most, hits not judged by (T-LRU, NeurIPS'25)",
        "requests beyond their limit of uncached blocks",
        _over,
        False,
        _tail_lru,
    ),
    "cache-ttl": Paper(
        "jobs 1.12 to 3.66 × faster, by hits of turns behind tools (Continuum)",
        "hit rate",
        _hits,
        True,
        _cache_ttl,
    ),
    "kvflow": Paper(
        "1.83 to 2.19 × faster, by hits of agents' prompts (KVFlow, NeurIPS'25)",
        "hit rate",
        _hits,
        True,
        _kvflow,
    ),
    "learned": Paper(
        "caches 18 to 47 % smaller at equal hits; here the bound of any predictor (LPC, NeurIPS'25)",
        "hit rate",
        _hits,
        True,
        _oracle,
    ),
}
