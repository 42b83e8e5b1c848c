"""Tenants: weighted shares, classes, tokens a second, quotas of cache, isolation."""

import itertools
import json
import os
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.engine import ARRIVAL, NO_MACHINE, Engine
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.serving.tenants.gate import TenantGate, random_pick
from kvcache_sim.serving.tenants.settings import TenancySettings, TenantSettings
from kvcache_sim.simulation import RunOptions
from support.examples import examples
from support.lookahead import by_the_clock

S = 10**9


class Served:
    """A fleet of one slot per request, each served for a second; records each admission and its time."""

    def __init__(self, settings, arrivals, service_ns=S, pick=None):
        """``arrivals``: (time, tenant, tokens) in order."""
        self.engine, self.admit, self.service_ns = Engine(0), [], service_ns
        tenants, tokens = [a[1] for a in arrivals], [a[2] for a in arrivals]
        names = [str(n) for n in range(max(tenants) + 1)]
        self.gate = TenantGate(settings, names, tenants, tokens, self.engine, pick)
        self.gate.open_to(self._enter)
        for request, (at_ns, _, _) in enumerate(arrivals):
            self.engine.schedule(at_ns, ARRIVAL, NO_MACHINE, self.gate.arrive, request)
        self.engine.run()

    def _enter(self, request):
        self.admit.append((self.engine.now_ns, request))
        at_ns = self.engine.now_ns + self.service_ns
        self.engine.schedule(at_ns, ARRIVAL, NO_MACHINE, lambda _: self.gate.closed())


def test_a_tenant_sends_a_request_at_random():
    """A pick of the last waiting request, one slot: 0 to 3 are there at 0, 4 and 5 come while 3 is served."""
    arrivals = [(0, 0, 9)] * 4 + [(S // 2, 0, 9)] * 2
    run = Served(TenancySettings({}, 1, "random"), arrivals, pick=lambda count: count - 1)
    assert [request for _, request in run.admit] == [3, 5, 4, 2, 1, 0]
    # a request that waits for its tokens stays the next: 1 is due at 1 s, 2 comes before
    slow = {"0": TenantSettings(tokens_per_s=9, burst_tokens=9)}
    arrivals = [(0, 0, 9)] * 2 + [(S // 2, 0, 9)]
    run = Served(TenancySettings(slow, None, "random"), arrivals, pick=lambda count: count - 1)
    assert run.admit == [(0, 1), (S, 0), (2 * S, 2)]
    # without a rate the pick is made when the tenant's turn has come, among all that wait by then
    arrivals = [(0, 0, 9), (0, 1, 9), (0, 1, 9), (S // 2, 1, 9)]
    run = Served(TenancySettings({}, 1, "random"), arrivals, pick=lambda count: count - 1)
    assert [request for _, request in run.admit] == [0, 3, 2, 1]


def test_random_picks_are_those_of_the_seed_and_uniform():
    firsts = [random_pick(seed)(3) for seed in range(900)]
    assert all(250 < firsts.count(k) < 350 for k in range(3))
    arrivals = [(n * S // 4, 0, 9) for n in range(30)]
    orders = [
        [
            request
            for _, request in Served(TenancySettings({}, 2, "random"), arrivals, pick=random_pick(seed)).admit
        ]
        for seed in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[2]) == list(range(30)) != orders[2]


@pytest.mark.parametrize("seed", range(int(os.environ.get("KVSIM_EXAMPLES", "40"))))
def test_the_gate_written_again(seed):
    """Step through time by 100 ms: refill, then admit the least (class, counter, number)."""
    draw = random.Random(seed)
    count, most = draw.randint(1, 4), draw.choice([None, 1, 2, 3])
    named = {}
    for n in range(count):
        rate = draw.choice([None, 100, 1000]) if most else draw.choice([100, 1000])
        burst = draw.choice([50, 500]) if rate else 0
        named[str(n)] = TenantSettings(draw.choice([0.5, 1, 2, 5]), draw.choice([0, 0, 1]), rate, burst)
    step = S // 10
    times = sorted(draw.randint(0, 60) * step for _ in range(40))
    # costs of whole tenths of a second's tokens, so that everything happens on the walk's grid
    arrivals = [(at_ns, draw.randrange(count), 100 * draw.randint(1, 5)) for at_ns in times]
    service = draw.randint(1, 12) * step
    run = Served(TenancySettings(named, most), arrivals, service)

    queues, counters = [[] for _ in range(count)], [Fraction(0)] * count
    levels = [Fraction(named[str(n)].burst_tokens) for n in range(count)]
    leaving, expected, now, came = [], [], 0, 0
    while len(expected) < len(arrivals):
        leaving = [at_ns for at_ns in leaving if at_ns > now]
        while came < len(arrivals) and arrivals[came][0] <= now:
            tenant = arrivals[came][1]
            waiting = [counters[n] for n in range(count) if queues[n]]
            if not queues[tenant] and waiting:
                counters[tenant] = max(counters[tenant], min(waiting))
            queues[tenant].append(came)
            came += 1
        while most is None or len(leaving) < most:
            able = []
            for n in range(count):
                own = named[str(n)]
                if queues[n]:
                    need = min(arrivals[queues[n][0]][2], own.burst_tokens)
                    if own.tokens_per_s is None or levels[n] >= need:
                        able.append((own.priority, counters[n], n))
            if not able:
                break
            n = min(able)[2]
            request = queues[n].pop(0)
            counters[n] += Fraction(arrivals[request][2]) / Fraction(named[str(n)].weight)
            levels[n] -= arrivals[request][2]
            expected.append((now, request))
            leaving.append(now + service)
        now += step
        for n in range(count):
            own = named[str(n)]
            if own.tokens_per_s is not None:
                levels[n] = min(levels[n] + Fraction(own.tokens_per_s, 10), Fraction(own.burst_tokens))
    assert run.admit == expected


# --- in a run ----------------------------------------------------------------------------------------------


def write_trace(path, rows):
    """Write (ms, tenant, ids) of prompts of whole blocks of 512 tokens."""
    lines = [
        {
            "timestamp": ms,
            "input_length": 512 * len(ids),
            "output_length": 4,
            "hash_ids": ids,
            "tenant": tenant,
        }
        for ms, tenant, ids in rows
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def runs(tmp_path, rows, more, again=True):
    write_trace(tmp_path / "t.jsonl", rows)
    text = f"trace: {{path: t.jsonl}}\ntiers: {{gpu: {{capacity: 64 blocks}}, cpu: {{capacity: 40 blocks}}}}\n{more}"
    scenario = scenario_from_text(text, "s", tmp_path)
    trace = read_requests(scenario)
    if not again:
        return execute(scenario, trace, RunOptions())
    made = by_the_clock(lambda: execute(scenario, trace, RunOptions(check="full")))
    assert len({run.summary["digest"]["results"] + run.summary["digest"]["events"] for run in made}) == 1
    return made[0]


def drawn_rows(seed, count=60):
    draw = random.Random(seed)
    common, rows = list(range(4)), []
    for n in range(count):
        tenant = draw.choice(["gold", "gold", "free"])
        own = [100 + 10 * draw.randrange(3), 101 + 10 * draw.randrange(3)]
        rows.append((n * draw.choice([0, 20, 60]), tenant, [*common, own[0], 1000 + n, 2000 + n]))
    return sorted(rows, key=lambda row: row[0])


def test_waiting_at_the_gateway_counts_from_the_first_arrival(tmp_path):
    rows = [(0, "a", [0]), (0, "a", [1]), (0, "b", [2]), (0, "a", [3])]
    made = runs(tmp_path, rows, "tenants: {max_in_flight: 1}")
    found = made.run.requests
    assert (found["arrival_ns"] == 0).all()
    # a, then b whose counter is less, then a and a
    assert np.argsort(found["first_token_ns"]).tolist() == [0, 2, 1, 3]
    order = [0, 2, 1, 3]
    for before, after in itertools.pairwise(order):
        assert found["queue_ns"][after] == found["finish_ns"][before]


def test_a_request_takes_its_prompt_and_its_answer_from_the_bucket(tmp_path):
    """1,000 tokens a second accrue: request k waits until its prompts' and answers' before it have."""
    rows = [(0, "a", list(range(10 * n, 10 * n + blocks))) for n, blocks in enumerate((1, 3, 2, 1))]
    made = runs(tmp_path, rows, "tenants: {of: {a: {tokens_per_s: 1000, burst: 2000}}}", again=False)
    spent = list(itertools.accumulate(512 * len(ids) + 4 for _, _, ids in rows))
    due_ns = [max(0, (tokens - 2000) * S // 1000) for tokens in spent]
    assert made.run.requests["queue_ns"].tolist() == due_ns


@pytest.mark.parametrize("seed", [1, 2])
def test_weights_count_by_their_ratio_and_names_do_not(tmp_path, seed):
    more = "cluster: {machines: 2}\ntenants: {max_in_flight: 3, of: {gold: {weight: %s}, free: {weight: %s}}}"
    rows = drawn_rows(seed)
    swapped = [(at, {"gold": "free", "free": "gold"}[name], ids) for at, name, ids in rows]
    cases = [(rows, more % (3, 1)), (rows, more % (6, 2)), (swapped, more % (1, 3))]
    digests = [runs(tmp_path, own, said).run.digest_results for own, said in cases]
    assert digests == [digests[0]] * 3
    assert runs(tmp_path, rows, more % (1, 3)).run.digest_results != digests[0]


def test_tenants_without_limits_change_nothing(tmp_path):
    rows = drawn_rows(3)
    free, no_member = (runs(tmp_path, rows, more).run for more in ("tenants: {}", ""))
    assert (free.digest_results, free.digest_events) == (no_member.digest_results, no_member.digest_events)


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost(tmp_path, seed):
    more = (
        "cluster: {machines: 2}\ntenants: {max_in_flight: 5, of: {gold: {weight: 3}, "
        "free: {tokens_per_s: 30000, burst: 20000, cache_blocks: 12}}}"
    )
    made = runs(tmp_path, drawn_rows(seed), more)
    summary = made.summary
    assert summary["requests"]["finished"] == 60
    assert summary["tenants"]["dropped_blocks"] > 0
    by_name = summary["tenants"]["by_name"]
    assert (
        sum(own["tokens"] for own in by_name.values())
        == summary["tokens"]["input"] + summary["tokens"]["output"]
    )
    rows = made.run.requests
    events = sorted(
        [(t, 1) for t in (rows["arrival_ns"] + rows["queue_ns"])] + [(t, -1) for t in rows["finish_ns"]]
    )
    inside = 0
    for _, change in events:
        inside += change
        assert inside <= 5


def test_a_quota_of_cache_keeps_the_blocks_used_last(tmp_path):
    """Prompts of two blocks one after another; two of four prompts fit in a quota of four blocks."""
    ids = {n: [10 * n, 10 * n + 1] for n in range(4)}
    order = [0, 1, 2, 3, 3, 2, 1, 0, 0]
    rows = [(2000 * k, "free", ids[n]) for k, n in enumerate(order)]
    more = "tenants: {of: {free: {cache_blocks: 4}}}"
    made = runs(tmp_path, rows, more)
    hits = (made.run.requests["cached_prefix_length_used"] > 0).tolist()
    assert hits == [False] * 4 + [True, True, False, False, True]
    free = runs(tmp_path, rows, "tenants: {of: {free: {}}}").run.requests["cached_prefix_length_used"]
    assert (free > 0).tolist() == [False] * 4 + [True] * 5
    # another tenant that uses a block last has it
    rows = [
        (0, "free", ids[0]),
        (2000, "gold", ids[0]),
        (4000, "free", ids[1]),
        (6000, "free", ids[2]),
        (8000, "gold", ids[0]),
    ]
    made = runs(tmp_path, rows, more)
    assert (made.run.requests["cached_prefix_length_used"] > 0).tolist() == [False, True, False, False, True]


@examples(25)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.lists(st.booleans(), min_size=1, max_size=4)),
        min_size=1,
        max_size=14,
    ),
    st.none() | st.integers(0, 5),
    st.integers(0, 5),
    st.sampled_from([256, 512]),
)
def test_quotas_keep_what_a_sorted_list_keeps(tmp_path_factory, drawn, of_a, of_b, block):
    """Prompts are paths of a binary tree, one after another, in a cache that never evicts."""
    paths = [
        [int("1" + "".join("01"[turn] for turn in path[: k + 1]), 2) for k in range(len(path))]
        for _, path in drawn
    ]
    rows, per_id = [(2000 * n, drawn[n][0], own) for n, own in enumerate(paths)], 512 // block
    quotas = {"a": of_a, "b": of_b}
    kept, owner, expected, dropped = set(), {}, [], 0
    for n, (_, tenant, own) in enumerate(rows):
        hit = next((k for k, name in enumerate(own) if name not in kept), len(own))
        expected.append(min(per_id * hit, per_id * len(own) - 1))  # one token at least is computed
        kept.update(own)
        owner |= {name: (tenant, n, -k) for k, name in enumerate(own)}
        while True:  # the last block of a prompt goes first
            used = sorted((use, name) for name, use in owner.items() if use[0] == tenant)
            if quotas[tenant] is None or len(used) <= quotas[tenant]:
                break
            (_, user, index), name = used[0]
            for block_name in reversed(paths[user][-index:]):  # except those that kept blocks follow
                if block_name in kept and not kept & {2 * block_name, 2 * block_name + 1}:
                    kept.remove(block_name)
                    dropped += per_id
            del owner[name]
    quoted = {name: "" if n is None else f"cache_blocks: {per_id * n}" for name, n in quotas.items()}
    of = ", ".join(f"{name}: {{{quota}}}" for name, quota in quoted.items())
    more = f"tenants: {{of: {{{of}}}}}\ncache: {{block_size: {block}}}"
    made = runs(tmp_path_factory.mktemp("t"), rows, more, again=False)
    found = [tokens // block for tokens in made.run.requests["cached_prefix_length_used"].tolist()]
    assert found == expected
    assert made.run.counters.get("tenants.dropped_blocks", 0) == dropped


def test_what_isolation_costs(tmp_path):
    """Both tenants send the same prompts: alone each pays for its own first."""
    rows = [(2000 * k, "ab"[k % 2], [0, 1, 2, 3]) for k in range(6)]
    shared = runs(tmp_path, rows, "tenants: {}").summary
    alone = runs(tmp_path, rows, "tenants: {isolate: true}").summary
    # five requests find the prompt where it is shared, four where each tenant computes it once
    assert shared["tokens"]["cached"] - alone["tokens"]["cached"] == shared["tokens"]["cached"] // 5
    assert (
        alone["tenants"]["by_name"]["a"]["token_hit_rate"]
        == alone["tenants"]["by_name"]["b"]["token_hit_rate"]
    )
    assert shared["tokens"]["cached"] > 0


def test_requests_without_a_tenant_are_one_tenant_and_a_field_must_exist(tmp_path):
    rows = [(0, None, [0]), (10, "a", [1])]
    made = runs(tmp_path, rows, "tenants: {of: {nobody: {weight: 2}}, max_in_flight: 9}")
    assert set(made.summary["tenants"]["by_name"]) == {"nobody", "a"}
    with pytest.raises(UsageError, match="no row has the member 'who'"):
        runs(tmp_path, rows, "tenants: {field: who}")
