"""Gateways' routers, choice by choice against small rewritings of their public sources, on random fleets.

The rewritings share nothing with the routers but the numbers they look at: dictionaries of whole prefixes, no
arrays, no masks. Fleets have ties, idle machines and prompts of one block; where a source draws at random
among
equals the choice has to be one of them, and all of them have to come up.
"""

import math
from collections import Counter
from functools import cache

import pytest
from fleets import BLOCK, ID_TOKENS, Fleet, Machine
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.rng import stream
from kvcache_sim.serving.router.contract import Occupancy
from kvcache_sim.serving.router.production_stack import VIRTUAL_NODES, HashRing, position
from kvcache_sim.serving.router.prompt_blocks import PromptBlocks
from kvcache_sim.serving.sequence import Arrival

seeds = st.integers(0, 2**32 - 1)


def order(fleet):
    """Yield the numbers of the requests that come, some of them again and again."""
    for _ in range(80):
        yield int(fleet.draw.integers(len(fleet.rows)))


@given(seeds, st.integers(1, 200))
def test_a_part_of_a_prompt_has_the_ids_that_it_reaches(seed, tokens):
    fleet = Fleet(seed)
    for number, row in enumerate(fleet.rows):
        part = Arrival(number, 0, min(tokens, fleet.tokens[number]), 5, -1)
        assert PromptBlocks(fleet.trace).ids(part) == row[: math.ceil(part.prompt_num_tokens / ID_TOKENS)]


# --- power of two choices, consistent hashing


@given(seeds)
def test_power_of_two(seed):
    fleet = Fleet(seed)
    made, draw, n = fleet.router("power-of-two"), stream(seed, "router"), fleet.count
    for number in order(fleet):
        fleet.shake()
        chosen = made.choose(fleet.request(number))
        if n == 1:
            assert chosen == 0
            continue
        i = int(draw.integers(n))
        j = (i + 1 + int(draw.integers(n - 1))) % n
        assert i != j
        assert chosen == (i if fleet.machines[i].requests <= fleet.machines[j].requests else j)


@cache
def line(machines):
    """Return the positions of all machines in order, each with its machine."""
    return sorted((position(f"machine {m}#{i}"), m) for m in range(machines) for i in range(VIRTUAL_NODES))


def owner_on_a_line(key, machines):
    """Return the machine with the first position from the key's own on, by looking at all of them."""
    own = position(key)
    return next((p for p in line(machines) if p[0] >= own), line(machines)[0])[1]


@given(seeds, st.sampled_from([None, 1.0, 1.5, 4.0]))
def test_consistent_hashing_with_bounded_load(seed, skew):
    fleet = Fleet(seed)
    made, draw = fleet.router("consistent-hashing", max_load_skew=skew), stream(seed, "router")
    for number in order(fleet):
        fleet.shake()
        sequence = fleet.request(number)
        chosen = made.choose(sequence)
        if sequence.session < 0:
            assert chosen == draw.integers(fleet.count)
            continue
        key = str(sequence.session)
        preferred = owner_on_a_line(key, fleet.count)
        loads = [m.requests for m in fleet.machines]
        total = sum(loads)

        def load_ok(machine, loads=loads, total=total):
            return total == 0 or loads[machine] <= total / fleet.count * skew

        if skew is None or load_ok(preferred) or not any(load_ok(m) for m in range(fleet.count)):
            assert chosen == preferred
            continue
        own = position(key)
        turned = [p for p in line(fleet.count) if p[0] >= own] + line(fleet.count)
        assert chosen == next(m for _, m in turned if load_ok(m))


def test_few_keys_move_when_a_machine_joins():
    before, after = HashRing(9), HashRing(10)
    moved = [k for k in map(str, range(5000)) if before.owner(k) != after.owner(k)]
    assert {after.owner(k) for k in moved} == {9}
    assert 0.05 < len(moved) / 5000 < 0.16
    assert len(set(after.clockwise("7"))) == len(list(after.clockwise("7"))) == 10


# --- vLLM's production stack


class Qps:
    """The endpoint of the session or of the smallest rate: lists of times, counted anew each time."""

    def __init__(self, machines):
        self.times = {}
        self.machines = machines

    def choose(self, sequence, now):
        if sequence.session >= 0:
            return owner_on_a_line(str(sequence.session), self.machines)
        for machine in range(self.machines):
            if machine not in self.times:
                return machine
        rates = [sum(t >= now - 60 * 10**9 for t in self.times[m]) / 60 for m in range(self.machines)]
        return rates.index(min(rates))

    def sent(self, machine, now):
        self.times.setdefault(machine, []).append(now)


@given(seeds, st.sampled_from([0, 20, 2000]))
def test_kvaware(seed, threshold):
    fleet = Fleet(seed)
    made, other = fleet.router("kvaware", kv_aware_threshold_tokens=threshold), Qps(fleet.count)
    for number in order(fleet):
        fleet.shake()
        sequence = fleet.request(number)
        reply = {m: blocks * BLOCK for m, blocks in enumerate(fleet.found) if blocks}
        matched = next(iter(reply.values()), None)
        if matched is None or matched < max(sequence.prompt_num_tokens - threshold, 0):
            expected = other.choose(sequence, fleet.now_ns)
        else:
            expected = next(iter(reply))
        other.sent(expected, fleet.now_ns)
        assert made.choose(sequence) == expected


@given(seeds, st.sampled_from([0.0, 0.2, 1.0]))
def test_loadaware(seed, beta):
    fleet = Fleet(seed)
    made, other = fleet.router("loadaware", load_weight=beta), Qps(fleet.count)
    for number in order(fleet):
        fleet.shake()
        sequence = fleet.request(number)
        prompt = sequence.prompt_num_tokens
        if not any(fleet.found):
            expected = other.choose(sequence, fleet.now_ns)
        else:
            mean = sum(m.requests for m in fleet.machines) / fleet.count
            expected, best = None, -math.inf
            for m, machine in enumerate(fleet.machines):
                score = min(fleet.found[m] * BLOCK, prompt) / max(prompt, 1)
                score = score - beta * (machine.requests - mean) / max(1.0, mean)
                if score > best:
                    expected, best = m, score
        other.sent(expected, fleet.now_ns)
        assert made.choose(sequence) == expected


# --- vLLM's own balancer


class Polled:
    """Loads that change only when a test says so."""

    def __init__(self, fleet):
        self.looks, self.report = 1, fleet.report

    def occupancy(self):
        return self.report


@given(seeds)
def test_vllm_data_parallel(seed):
    fleet = Fleet(seed)
    fleet.parts["scraped"] = polled = Polled(fleet)
    made = fleet.router("vllm-dp")
    start, n = 0, fleet.count
    waiting = list(polled.report.waiting)
    for number in order(fleet):
        fleet.shake()
        if fleet.draw.random() < 0.3:
            polled.looks, polled.report = polled.looks + 1, fleet.report
            waiting = list(polled.report.waiting)
        least, expected = math.inf, None
        for step in range(n):
            i = (start + step) % n
            score = max(fleet.machines[i].requests, waiting[i] + polled.report.running[i])
            if waiting[i] > 0:
                score += 6 * waiting[i] * max(0, polled.report.kv_use[i] - 0.5)
            if score < least:
                least, expected = score, i
        waiting[expected] += 1
        start = (start + 1) % n
        assert made.choose(fleet.request(number)) == expected


def test_eight_requests_in_one_instant_go_round_four_idle_ranks():
    fleet = Fleet(1, [Machine() for _ in range(4)])
    made = fleet.router("vllm-dp")
    chosen = []
    for number in range(8):
        chosen.append(made.choose(fleet.request(number)))
        fleet.machines[chosen[-1]].requests += 1
    assert chosen == [0, 1, 2, 3, 0, 1, 2, 3]
    fleet.report = Occupancy([5, 16, 17, 18], [0, 0, 0, 0], [0.9, 0.5, 0.5, 0.5])
    assert made.choose(fleet.request(9)) == 1  # 5 waiting at 0.9 add 12: 17 against 16


# --- llm-d's weighted scorers


def scored(name, fleet, sequence, matched, hashed, memory):
    """Scores of one scorer by the table of the gateway API's plug-ins, a machine at a time."""
    waiting, running, use = fleet.report
    n = fleet.count

    def spread(q):
        return [1.0 if max(q) == min(q) else (max(q) - v) / (max(q) - min(q)) for v in q]

    if name == "prefix":
        return [m / hashed if hashed else 0.0 for m in matched]
    if name == "queue":
        return spread(waiting)
    if name == "running":
        return spread(running)
    if name == "kv-use":
        return [1 - u for u in use]
    if name == "load-aware":
        return [0.5 if q == 0 else 0.0 if q >= 128 else 0.5 * (1 - q / 128) for q in waiting]
    if name == "active-requests":
        counts = [m.requests for m in fleet.machines]
        return [1.0 if c == 0 else (max(counts) - c) / max(counts) for c in counts]
    if name == "token-load":
        new = [max(sequence.prompt_num_tokens - m * memory["unit"], 0) for m in matched]
        flight = [m.expected_prefill_tokens + t for m, t in zip(fleet.machines, new, strict=True)]
        return [1 - min(t, 4194304) / 4194304 for t in flight]
    if name == "no-hit-lru":
        if any(matched):
            return [0.5] * n
        never = [m for m in range(n) if m not in memory["lru"]]
        ranks = {m: r for r, m in enumerate(never + memory["lru"])}
        return [1.0 if n == 1 else max(0.0, 1 - ranks[m] / (n - 1)) for m in range(n)]
    assert name == "session-affinity"
    return [1.0 if memory["sessions"].get(sequence.session) == m else 0.0 for m in range(n)]


SETS = [
    {"prefix": 3.0, "kv-use": 2.0, "queue": 2.0},
    dict.fromkeys(("prefix", "active-requests"), 1.5)
    | dict.fromkeys(("kv-use", "queue"), 2.0)
    | dict.fromkeys(("running", "token-load", "no-hit-lru"), 1.0)
    | {"load-aware": 0.5, "session-affinity": 0.25},
    {"no-hit-lru": 1.0},
    {"active-requests": 2.0, "prefix": 1.0},
]


class Hashes:
    """The estimate of llm-d by whole prefixes: a list a machine, the newest last."""

    def __init__(self, fleet, index_blocks):
        self.fleet = fleet
        self.sizes = [index_blocks or m.gpu_blocks for m in fleet.machines]
        self.kept = [[] for _ in fleet.machines]

    def blocks(self, sequence):
        tokens = sequence.prompt_num_tokens
        ends = [min(end, tokens) for end in range(64, tokens + 64, 64)]
        return [self.fleet.prefix(sequence.request, end) for end in ends]

    def match(self, sequence):
        counts = [0] * self.fleet.count
        blocks = self.blocks(sequence)
        for block in blocks:
            if not any(block in kept for kept in self.kept):
                break
            counts = [c + (block in kept) for c, kept in zip(counts, self.kept, strict=True)]
        return counts, len(blocks)

    def sent(self, sequence, machine):
        for block in self.blocks(sequence):
            if block in self.kept[machine]:
                self.kept[machine].remove(block)
            self.kept[machine].append(block)
        del self.kept[machine][: -self.sizes[machine]]


@given(seeds, st.sampled_from(SETS), st.sampled_from(["truth", "estimated"]), st.sampled_from([None, 5]))
def test_weighted_scorers(seed, weights, kind, index_blocks):
    fleet = Fleet(seed)
    made = fleet.router("weighted", scorers=weights, index_kind=kind, index_blocks=index_blocks)
    hashes = Hashes(fleet, index_blocks)
    memory = {"lru": [], "sessions": {}, "unit": 64 if kind == "estimated" else BLOCK}
    for number in order(fleet):
        fleet.shake()
        sequence = fleet.request(number)
        matched, hashed = fleet.found, sequence.prompt_num_tokens // BLOCK
        if kind == "estimated":
            matched, hashed = hashes.match(sequence)
        total = [0.0] * fleet.count
        for name, weight in weights.items():
            each = scored(name, fleet, sequence, matched, hashed, memory)
            total = [t + weight * min(max(s, 0.0), 1.0) for t, s in zip(total, each, strict=True)]
        chosen = made.choose(sequence)
        assert total[chosen] == pytest.approx(max(total), abs=1e-12)
        hashes.sent(sequence, chosen)
        memory["sessions"][sequence.session] = chosen
        memory["sessions"].pop(-1, None)
        if not any(matched):
            memory["lru"] = [m for m in memory["lru"] if m != chosen] + [chosen]


def test_equal_scores_are_drawn_evenly():
    fleet = Fleet(3, [Machine() for _ in range(4)])
    made = fleet.router("weighted", scorers={"queue": 1.0})
    fleet.report = Occupancy([0, 0, 9, 0], [0] * 4, [0.0] * 4)
    counts = Counter(made.choose(fleet.request(1)) for _ in range(3000))
    assert sorted(counts) == [0, 1, 3]
    assert min(counts.values()) > 900


# --- NVIDIA Dynamo's KV router


@given(seeds, st.sampled_from([0.0, 1.0, 2.5]))
def test_dynamo(seed, scale):
    """Costs by sets of whole prefixes; requests end in between, and are identified by their number alone."""
    fleet = Fleet(seed)
    made = fleet.router("dynamo-kv", overlap_weight=scale)
    opened = {}
    for number in order(fleet):
        fleet.shake()
        for ended in [r for r in opened if fleet.draw.random() < 0.15]:
            for notify in fleet.closings:
                notify(ended)
            del opened[ended]
        if number in opened:
            continue
        sequence = fleet.request(number)
        isl = sequence.prompt_num_tokens
        blocks = {fleet.prefix(number, end) for end in range(BLOCK, isl + 1, BLOCK)}
        costs = []
        for m, machine in enumerate(fleet.machines):
            cached = min(isl, fleet.found[m] * BLOCK)
            raw = machine.expected_prefill_tokens + (isl - cached) + cached
            active = {b for w, own in opened.values() if w == m for b in own}
            decode = len(active) + len(blocks - active)
            costs.append(scale * max(0.0, raw / BLOCK - fleet.found[m]) + decode)
        chosen = made.choose(sequence)
        assert costs[chosen] == pytest.approx(min(costs), abs=1e-9)
        assert sequence.expected_prefill_tokens == max(isl - fleet.found[chosen] * BLOCK, 0)
        opened[number] = chosen, blocks


@pytest.mark.parametrize(
    ("found", "expected", "shares"),
    [
        ([3, 0], [0, 0], [0.731, 0.269]),
        ([3, 0, 0], [0, 0, 42], [0.434, 0.406, 0.160]),
        ([2, 2, 2], [0, 0, 0], [1 / 3, 1 / 3, 1 / 3]),
    ],
)
def test_a_temperature_spreads_by_the_range_of_costs(found, expected, shares):
    """Costs 5 and 8 and, with a third machine that has 42 blocks to compute, 50; equal ones are drawn evenly."""
    fleet = Fleet(0, [Machine(expected_prefill_tokens=blocks * BLOCK) for blocks in expected])
    fleet.tokens[1] = 4 * BLOCK
    made = fleet.router("dynamo-kv", temperature=1.0)
    counts = Counter()
    for _ in range(6000):
        sequence = fleet.request(1)
        fleet.found = found
        counts[made.choose(sequence)] += 1
        for notify in fleet.closings:
            notify(1)
    assert [counts[m] / 6000 for m in range(len(found))] == pytest.approx(shares, abs=0.02)
