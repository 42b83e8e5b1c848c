"""The sessions, the shared prefixes and the simplified accounting of ``spec/`` against those of the caches, op by op."""

from __future__ import annotations

import os
import random
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
from kvcache_sim.cache.prefix_view import GlobalPrefixStore as CachesPrefixes
from kvcache_sim.cache.prefix_view import PrefixAdmission, PrefixViewSettings
from kvcache_sim.cache.session_view import SessionCacheInfo as CachesInfo
from kvcache_sim.cache.session_view import SessionView, SessionViewSettings
from kvcache_sim.cache.token_store import Prompts, TokenStore
from kvcache_sim.reference.digest import RollingDigest
from kvcache_sim.reference.store import ReferenceKeys
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.spec.lookups import LookUps, SessionCacheInfo, Sessions
from kvcache_sim.spec.prefix_store import GlobalPrefixStore, PrefixCriteria
from kvcache_sim.spec.simplified_store import SimplifiedStore
from kvcache_sim.workload.key_arrays import key_arrays

BLOCK = 16
FIRST = random.randrange(10**9) if "KVSIM_EXAMPLES" in os.environ else 0
SEEDS = range(FIRST, FIRST + int(os.environ.get("KVSIM_EXAMPLES", "40")))


def session_of(info) -> dict:
    return {**asdict(info), "kv_block_ids": list(info.kv_block_ids), "total": info.total_tokens_in_cache}


@pytest.mark.parametrize("seed", SEEDS)
def test_sessions_are_known_and_forgotten_alike(seed: int):
    draw = random.Random(seed)
    bounds = draw.choice([None, 1, 3]), draw.choice([None, 5, 40])
    ours, theirs = Sessions(*bounds), SessionView(SessionViewSettings(*bounds))
    forgotten: list[list[str]] = [[], []]
    ours.on_forgotten = forgotten[0].append
    theirs.when_forgotten(forgotten[1].append)
    now = 0
    for turn in range(60):
        now += draw.randint(0, 9)
        name = f"s{draw.randint(0, 5)}"
        if draw.random() < 0.6:
            facts = (name, draw.randint(1, 99), draw.randint(0, 9), str(turn), [turn], now)
            ours.complete_turn(SessionCacheInfo(*facts))
            theirs.complete_turn(CachesInfo(*facts))
        elif draw.random() < 0.2:
            ours.forget(name)
            theirs.forget(name)
        found, expected = ours.known(name, now), theirs.known(name, now)
        assert (found and session_of(found)) == (expected and session_of(expected))
        assert list(ours.active_sessions_kv_state) == list(theirs.active_sessions_kv_state)
        assert forgotten[0] == forgotten[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_prefixes_enter_and_leave_alike(seed: int):
    draw = random.Random(seed)
    ours, theirs = GlobalPrefixStore(BLOCK), CachesPrefixes(BLOCK)
    least, seen = draw.choice([None, 40]), draw.choice([1, 2, 3])
    criteria = PrefixCriteria(-(-(least or 1) // BLOCK), seen)
    admission = PrefixAdmission(PrefixViewSettings(least, seen), BLOCK)
    held: list[int] = []
    for access in range(150):
        path = [draw.randint(0, 2)]
        while draw.random() < 0.7:
            path.append(path[-1] * 3 + draw.randint(3, 5))
        if draw.random() < 0.4:
            criteria.observe(path)
            admission.observe(path)
        admitted = criteria.admitted_blocks(path)
        assert admitted == admission.admitted_blocks(path)
        assert [criteria.admits(p) for p in path] == [admission.admitted(p) for p in path]
        blocks = ours.longest(path[:admitted])
        assert blocks == theirs.longest(path[:admitted], 1)
        if blocks < len(path) and draw.random() < 0.6:
            parent = path[blocks - 1] if blocks else None
            if path[blocks] not in ours.global_prefix_store:
                ours.add(path[blocks], parent)
                theirs.add(path[blocks], parent)
                held.append(path[blocks])
                for store in (ours, theirs):
                    store.acquire(path[blocks])
        elif held and draw.random() < 0.6:
            prefix = held.pop(draw.randrange(len(held)))
            for store in (ours, theirs):
                store.touch(prefix, access, access * 10)
                store.release(prefix)
        victim, other = ours.oldest_unused(), theirs.oldest_unused()
        assert (victim and victim.kv_block_ids) == (other and other.kv_block_ids)
        if victim is not None and other is not None and draw.random() < 0.4:
            ours.evict(victim)
            theirs.evict(other)
        assert entries(ours) == entries(theirs)
        assert ours.tokens == theirs.tokens


def entries(store) -> list[tuple]:
    return [
        (info.prefix_hash, info.length, info.reference_count, info.last_access_ns, info.access)
        for info in store.global_prefix_store.values()
    ]


class Both:
    """The token store of ``cache/`` and the plain one, over the requests of a drawn workload."""

    def __init__(self, draw: random.Random) -> None:
        sets = [
            f"seed={draw.randrange(10**6)}",
            "workload.kind=conversational",
            "workload.requests=24",
            f"workload.block_size={BLOCK}",
            "workload.system_prompt_tokens=40",
            "workload.first_input_tokens={kind: uniform, min: 10, max: 90}",
            "workload.new_input_tokens={kind: uniform, min: 1, max: 40}",
            "workload.output_tokens={kind: uniform, min: 1, max: 30}",
            "workload.turns={kind: uniform, min: 1, max: 5}",
            f"cache.block_size={BLOCK}",
            "cache.accounting=simplified",
            f"tiers.gpu.capacity={draw.choice([20, 40, 80, 1000])} blocks",
            f"prefix_view.min_seen={draw.choice([1, 1, 2])}",
            f"prefix_view.max_tokens={draw.choice(['null', 'null', 160, 320])}",
            f"session_view.max_sessions={draw.choice(['null', 2])}",
        ]
        scenario = load_scenario(None, sets)
        self.trace = trace = read_requests(scenario)
        if draw.random() < 0.3:
            history = np.array([draw.randint(0, int(n) - 1) for n in trace.input_tokens], np.int64)
            self.trace = trace = replace(trace, history_tokens=history)
        cache, self.clock = scenario.settings.cache, SimpleNamespace(now_ns=0)
        self.capacity = scenario.settings.machines[0].tiers[0].capacity_blocks * BLOCK
        arrays = key_arrays(trace, BLOCK)
        told = trace.history_tokens.tolist() if len(trace.history_tokens) else [-1] * len(trace)
        names = [trace.session_id(session) for session in trace.session.tolist()]
        self.view = SessionView(cache.session_view)
        self.theirs = TokenStore(
            keys=ReferenceKeys(*arrays),
            prompts=Prompts(names, trace.input_tokens.tolist(), told),
            block_size_tokens=BLOCK,
            capacity=self.capacity,
            sessions=self.view,
            admission=PrefixAdmission(cache.prefix_view, BLOCK),
            now_ns=lambda: self.clock.now_ns,
            records=RollingDigest(),
        )
        self.lookups = LookUps(0, cache, BLOCK, None, trace, self.clock)
        self.ours = SimplifiedStore(self.lookups, self.capacity)
        self.names = names

    def observe(self, request: int) -> None:
        blocks = int(self.trace.input_tokens[request]) // BLOCK
        prefixes = list(self.ours.keys.path(request, 0, blocks))
        self.lookups.prefixes.observe(prefixes)
        self.theirs.admission.observe(prefixes)

    def complete_turn(self, request: int, tokens: tuple[int, int]) -> None:
        facts = (self.names[request], *tokens, str(request), [], self.clock.now_ns)
        self.lookups.sessions.complete_turn(SessionCacheInfo(*facts))
        self.view.complete_turn(CachesInfo(*facts))
        kept = [store.keep_session(request, facts[0], sum(tokens)) for store in (self.ours, self.theirs)]
        assert kept[0] == kept[1]
        if not kept[0]:
            self.lookups.sessions.forget(facts[0])
            self.view.forget(facts[0])

    def agree(self, draw: random.Random) -> None:
        request = draw.randrange(len(self.trace))
        limit = draw.randint(0, int(self.trace.input_tokens[request]))
        assert self.ours.peek(request, limit) == self.theirs.peek(request, limit)
        assert self.ours.room(0) == self.theirs.room(0)
        assert self.ours.losses(0) == self.theirs.losses(0)
        assert self.ours.merged_blocks == self.theirs.merged_blocks
        assert entries(self.ours.prefixes) == entries(self.theirs.prefixes)
        assert list(self.lookups.sessions.active_sessions_kv_state) == list(
            self.view.active_sessions_kv_state
        )
        self.ours.check()
        self.theirs.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_simplified_accounting_counts_alike(seed: int):
    draw = random.Random(seed)
    both = Both(draw)
    #: By request its two leases and the tokens that it has and may have.
    running: dict[int, list] = {}
    for _ in range(140):
        both.clock.now_ns += draw.randint(0, 3)
        request = draw.randrange(len(both.trace))
        prompt = int(both.trace.input_tokens[request])
        if request not in running:
            found = both.ours.peek(request, prompt - 1)[0]
            leases = [store.acquire(request, found) for store in (both.ours, both.theirs)]
            answers = [
                store.reserve(lease, prompt - found, both.clock.now_ns)
                for store, lease in zip((both.ours, both.theirs), leases, strict=True)
            ]
            assert answers[0] == answers[1]
            if answers[0] is None:
                both.ours.abandon(leases[0])
                both.theirs.abandon(leases[1])
            else:
                both.observe(request)
                running[request] = [leases, found, prompt]
        else:
            leases, has, most = running[request]
            if has < most:
                has = running[request][1] = draw.randint(has + 1, most)
                both.ours.commit(leases[0], has // BLOCK * BLOCK)
                both.theirs.commit(leases[1], has // BLOCK * BLOCK)
                assert both.ours.depth(leases[0]) == both.theirs.depth(leases[1])
            elif draw.random() < 0.5 and most < prompt + 20:
                more = draw.randint(1, 9)
                answers = [
                    store.reserve_many([(lease, more)], both.clock.now_ns)
                    for store, lease in zip((both.ours, both.theirs), leases, strict=True)
                ]
                assert answers[0] == answers[1]
                if answers[0] is not None:
                    running[request][2] += more
            else:
                both.ours.release(leases[0], both.clock.now_ns)
                both.theirs.release(leases[1], both.clock.now_ns)
                del running[request]
                if both.names[request] is not None and draw.random() < 0.9:
                    both.complete_turn(request, (prompt, has - prompt))
        both.agree(draw)
