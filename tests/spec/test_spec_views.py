"""The specification's sessions against a plain list, and its simplified accounting against the core's, op by op."""

import os
import random

import numpy as np
import pytest
from kvcache_sim.cache.settings import PrefixViewSettings, SessionViewSettings
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.spec.lookups import SessionCacheInfo, Sessions
from kvcache_sim.workload.key_arrays import key_arrays
from token_stores import BLOCK, STORES

FIRST = random.randrange(10**9) if "KVSIM_EXAMPLES" in os.environ else 0
SEEDS = range(FIRST, FIRST + int(os.environ.get("KVSIM_EXAMPLES", "40")))


@pytest.mark.parametrize("seed", SEEDS)
def test_sessions_are_known_and_forgotten_as_in_a_plain_list(seed: int):
    draw = random.Random(seed)
    most, ttl = draw.choice([None, 1, 3]), draw.choice([None, 5, 40])
    sessions, plain = Sessions(most, ttl), list[SessionCacheInfo]()
    gone: list[str] = []
    sessions.on_forgotten = gone.append
    now, expected = 0, list[str]()

    def forget(infos):
        expected.extend(info.session_id for info in infos)
        plain[:] = [info for info in plain if info not in infos]

    for turn in range(60):
        now += draw.randint(0, 9)
        name = f"s{draw.randint(0, 5)}"
        if draw.random() < 0.6:
            info = SessionCacheInfo(name, draw.randint(1, 99), draw.randint(0, 9), str(turn), [turn], now)
            sessions.complete_turn(info)
            plain[:] = [one for one in plain if one.session_id != name] + [info]
            forget(plain[: max(len(plain) - most, 0)] if most is not None else [])
        elif draw.random() < 0.2:
            sessions.forget(name)
            forget([one for one in plain if one.session_id == name])
        forget([one for one in plain if ttl is not None and now - one.last_update_ns >= ttl])
        assert sessions.known(name, now) is next((one for one in plain if one.session_id == name), None)
        assert list(sessions.active_sessions_kv_state.values()) == plain
        assert gone == expected


class Both:
    """The specification's store and the core's, over the requests of a drawn workload."""

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
        ]
        self.trace = trace = read_requests(load_scenario(None, sets))
        history = np.full(len(trace), -1)
        if draw.random() < 0.3:
            history = np.array([draw.randint(0, int(n) - 1) for n in trace.input_tokens], np.int64)
        prompts = trace.session.astype(np.int64), trace.input_tokens.astype(np.int64), history
        capacity = draw.choice([20, 40, 80, 1000]) * BLOCK
        sessions = SessionViewSettings(draw.choice([None, 2]), draw.choice([None, 30]))
        prefixes = PrefixViewSettings(
            draw.choice([None, 40]), draw.choice([1, 1, 2]), draw.choice([None, None, 160, 320])
        )
        arrays = key_arrays(trace, BLOCK)
        self.stores = [make(arrays, prompts, capacity, sessions, prefixes) for make in STORES.values()]
        self.now = 0

    def said(self, name: str, *arguments):
        """Return what both stores answer, which is the same."""
        core, spec = (getattr(store, name)(*arguments) for store in self.stores)
        assert core == spec, name
        return core

    def each(self, name: str, leases: list[int], *arguments):
        """Return what both stores answer about a lease of each, which is the same."""
        core, spec = (
            getattr(store, name)(lease, *arguments) for store, lease in zip(self.stores, leases, strict=True)
        )
        assert core == spec, name
        return core

    def agree(self, draw: random.Random) -> None:
        request = draw.randrange(len(self.trace))
        self.said("find", request, draw.randint(0, int(self.trace.input_tokens[request])), self.now)
        self.said("occupancy", 0)
        self.said("eviction_counts", 0)
        self.said("session_tokens", int(self.trace.session[request]), self.now)
        assert len({store.used for store in self.stores}) == 1
        assert len({store.merged_blocks for store in self.stores}) == 1
        for store in self.stores:
            store.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_simplified_accounting_counts_as_in_the_core(seed: int):
    draw = random.Random(seed)
    both = Both(draw)
    #: By request its two leases and the tokens that it has and may have.
    running: dict[int, list] = {}
    for _ in range(140):
        both.now += draw.randint(0, 3)
        request = draw.randrange(len(both.trace))
        prompt = int(both.trace.input_tokens[request])
        if request not in running:
            found = both.said("find", request, prompt - 1, both.now)
            leases = [store.acquire(request, found) for store in both.stores]
            if both.each("reserve", leases, prompt - found, both.now) is None:
                both.each("abandon", leases)
            else:
                both.said("observe", request, prompt)
                running[request] = [leases, found, prompt]
        else:
            leases, has, most = running[request]
            if has < most:
                has = running[request][1] = draw.randint(has + 1, most)
                both.each("commit", leases, has // BLOCK * BLOCK)
                both.each("depth", leases)
            elif draw.random() < 0.5 and most < prompt + 20:
                more = draw.randint(1, 9)
                answers = [
                    store.reserve_many([(lease, more)], both.now)
                    for store, lease in zip(both.stores, leases, strict=True)
                ]
                assert answers[0] == answers[1]
                if answers[0] is not None:
                    running[request][2] += more
            else:
                both.each("release", leases, both.now)
                del running[request]
                if both.trace.session[request] >= 0 and draw.random() < 0.9:
                    both.said("complete_turn", request, int(both.trace.session[request]), has, both.now)
        both.agree(draw)
