"""Dynamo's and llm-d's costs of 2026: cases worked by hand (``routers.md`` 8), and small models on random fleets."""

import math
import statistics
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from fleets import BLOCK, ID_TOKENS, Copies, Fleet, Machine
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim import _core
from kvcache_sim.base.errors import StoreError
from kvcache_sim.scenario.load import scenario_from_text

seeds = st.integers(0, 2**32 - 1)
MS = 10**6


def fleet_of(*active: int, tokens: int = 10 * BLOCK) -> Fleet:
    """Return machines with as many open requests, and prompts of ten blocks."""
    fleet = Fleet(0, [Machine(requests=count) for count in active])
    fleet.tokens = [tokens] * len(fleet.rows)
    return fleet


def choose(fleet: Fleet, router, found, number: int = 1) -> int:
    sequence = fleet.request(number)
    fleet.found = list(found)
    return router.choose(sequence)


def drawn(fleet: Fleet, router, found) -> set[int]:
    """Return the machines that are chosen for the same prompt again and again, each time after it has ended."""
    chosen = set()
    for _ in range(40):
        chosen.add(choose(fleet, router, found))
        for notify in fleet.closings:
            notify(1)
    return chosen


# --- LMetric


@pytest.mark.parametrize(
    ("found", "active", "dynamo", "llm_d"),
    [
        ([0, 8, 4], [0, 3, 1], 1, {1}),  # 160, 32·4 = 128, 96·2 = 192
        ([0, 8, 4], [0, 4, 1], 0, {0, 1}),  # 160, 160, 192
        ([10, 10, 0], [3, 1, 0], 1, {0, 1}),  # the floor: 1·4, 1·2, 160; without it 0, 0, 160
    ],
)
def test_lmetric_by_hand(found, active, dynamo, llm_d):
    fleet = fleet_of(*active)
    assert drawn(fleet, fleet.router("lmetric", hotspot_detection=False), found) == {dynamo}
    assert drawn(fleet, fleet.router("weighted", scorers={"lmetric": 1.0}), found) == llm_d


def test_llm_ds_scores_are_the_spread_of_the_costs():
    """Costs 160, 128 and 192 score a half, one and zero: a queue's weight of 0.4 is enough to leave machine 1."""
    fleet = fleet_of(0, 3, 1)
    fleet.report = fleet.report._replace(waiting=[0, 9, 9])
    for weight, chosen in ((0.4, 1), (0.6, 0)):
        router = fleet.router("weighted", scorers={"lmetric": 1.0, "queue": weight})
        assert drawn(fleet, router, [0, 8, 4]) == {chosen}


def test_llm_d_weighs_a_prefix_on_the_cpu():
    """Ten blocks on the CPU count eight: 2·16 to compute, so the machine without any load serves at equal cost."""
    for parts, chosen in (({"trees": [Copies([(1, 0, 10, 0)]), None]}, {0, 1}), ({}, {0})):
        fleet = fleet_of(4, 0)
        fleet.parts = parts
        assert drawn(fleet, fleet.router("weighted", scorers={"lmetric": 1.0}), [10, 0]) == chosen


def test_a_prompt_without_blocks_is_drawn():
    fleet = fleet_of(9, 0, tokens=BLOCK - 1)
    assert drawn(fleet, fleet.router("weighted", scorers={"lmetric": 1.0}), [0, 0]) == {0, 1}
    assert drawn(fleet, fleet.router("lmetric"), [0, 0]) == {1}


def test_a_hot_prefix_by_hand():
    fleet = fleet_of(2, 1, 1)
    router = fleet.router("lmetric", class_prefix_blocks=2, window_requests=4)
    assert [choose(fleet, router, [10, 0, 0]) for _ in range(3)] == [0, 1, 1]
    router = fleet.router("lmetric", hotspot_detection=False)
    assert [choose(fleet, router, [10, 0, 0]) for _ in range(3)] == [0, 0, 0]
    fleet.tokens[1] = 4 * BLOCK - 1  # three full blocks name no class of four
    assert [choose(fleet, fleet.router("lmetric"), [3, 0, 0]) for _ in range(9)] == [0] * 9


@given(seeds, st.sampled_from([1, 4, 8]), st.sampled_from([1, 3, 1000]))
def test_lmetric_by_whole_lists(seed, blocks, window):
    """The window as a list, streaks by class, exact fractions; a class without a request in it is forgotten."""
    fleet = Fleet(seed)
    router = fleet.router("lmetric", class_prefix_blocks=blocks, window_requests=window)
    recent, streaks = [], Counter()
    for number in map(int, fleet.draw.integers(0, len(fleet.rows), 80)):
        fleet.shake()
        sequence = fleet.request(number)
        tokens, machines = sequence.prompt_num_tokens, range(fleet.count)
        cost = [max(1, tokens - fleet.found[m] * BLOCK) * (fleet.machines[m].requests + 1) for m in machines]
        expected = cost.index(min(cost))
        if tokens >= blocks * BLOCK:
            kind = fleet.rows[number][: -(-blocks * BLOCK // ID_TOKENS)].__repr__()
            if len(recent) == window and recent.pop(0) not in recent:
                streaks = Counter({name: n for name, n in streaks.items() if name in recent})
            recent.append(kind)
            share = Fraction(recent.count(kind), len(recent))
            having = [m for m in machines if fleet.found[m] >= blocks]
            lacking = [m for m in machines if m not in having]
            alarm = having and lacking and share * len(lacking) > (1 - share) * len(having)
            streaks[kind] = streaks[kind] + 1 if alarm and expected in having else 0
            if streaks[kind] >= 2 * len(having) > 0:
                expected = min(lacking, key=lambda m: cost[m])
        assert router.choose(sequence) == expected


# --- the two-tier cost


@pytest.mark.parametrize(
    ("rows", "chosen"),
    [
        ([(0, 0), (6, 4), (6, 2)], 2),
        ([(0, 0), (5, 4), (5, 2)], 0),  # half is not above a half
        ([(0, 0), (10, 40), (6, 2)], 0),  # uneven: the full hit is ignored
        ([(0, 640), (10, 704), (0, 650)], 1),  # 704 is not above 1.1 × 640
        ([(0, 640), (10, 705), (0, 650)], 0),
        ([(0, 2), (0, 1), (0, 1)], 1),
    ],
)
def test_two_tiers_by_hand(rows, chosen):
    found, active = zip(*rows, strict=True)
    fleet = fleet_of(*active)
    own = {"balance_abs_threshold": 32, "balance_rel_threshold": 1.1, "cache_threshold": 0.5}
    assert choose(fleet, fleet.router("dynamo-two-tier-cost-fn", **own), found) == chosen


@given(seeds, st.sampled_from([0, 2, 32]), st.sampled_from([1.0, 1.5]), st.sampled_from([0.0, 0.5, 1.0]))
def test_two_tiers_step_by_step(seed, by_requests, by_factor, share):
    fleet = Fleet(seed)
    router = fleet.router(
        "dynamo-two-tier-cost-fn",
        balance_abs_threshold=by_requests,
        balance_rel_threshold=by_factor,
        cache_threshold=share,
    )
    for number in map(int, fleet.draw.integers(0, len(fleet.rows), 60)):
        fleet.shake()
        sequence = fleet.request(number)
        active = [machine.requests for machine in fleet.machines]
        among = list(range(fleet.count))
        if not (max(active) - min(active) > by_requests and max(active) > by_factor * min(active)):
            longest = max(fleet.found)
            if Fraction(longest, -(-sequence.prompt_num_tokens // BLOCK)) > share:
                among = [m for m in among if fleet.found[m] == longest]
        assert router.choose(sequence) == min(among, key=active.__getitem__)


def test_own_defaults_of_shared_keys():
    """A policy's own defaults fill in the keys that the scenario leaves open, and those alone."""

    def router(*sets):
        return scenario_from_text("cluster: {machines: 2}", "s.yaml", Path.cwd(), sets).model.router

    own = router("router.policy=dynamo-two-tier-cost-fn")
    assert (own.balance_abs_threshold, own.balance_rel_threshold, own.cache_threshold) == (32, 1.1, 0.5)
    own = router("router.policy=dynamo-two-tier-cost-fn", "router.cache_threshold=0.3")
    assert (own.balance_abs_threshold, own.cache_threshold) == (32, 0.3)
    assert router("router.policy=cache-aware").balance_abs_threshold == 64
    assert router("router.policy=dynamo-two-tier-adaptive").load_scale == 32
    assert router("router.policy=aimd").load_scale == 8
    decode = (
        "handover.router=dynamo-two-tier-cost-fn",
        "pools.prefill=2",
        "pools.decode=2",
        "cluster.machines=4",
    )
    assert router("router.policy=cache-aware", *decode).balance_abs_threshold == 64
    assert router("router.policy=random", *decode).balance_abs_threshold == 32


# --- weights that follow the imbalance


def weighed(fleet, weight, scale, share):
    active = [machine.requests for machine in fleet.machines]
    least, most = min(active), max(active)
    return [
        (1 - weight) * (1 - s) + weight * (a - least) / (scale + most - least)
        for s, a in zip(share, active, strict=True)
    ]


def logistic(x):
    return 1 / (1 + math.exp(-x))


class Adaptive:
    """The adaptive mode: its weight is a function of the loads at the last update."""

    def __init__(self, scale):
        self.scale, self.weight = scale, math.nan

    def update(self, active):
        imbalance = (max(active) - min(active)) / (max(active) + self.scale)
        pressure = min(active) / (min(active) + self.scale)
        self.weight = 0.1 + logistic(10 * (imbalance - 0.5)) * (0.9 - 0.4 * pressure - 0.1)


class Controller:
    """The controller of pull request 14531 with the library's standard deviation."""

    def __init__(self, scale, sigmoid):
        self.scale, self.sigmoid = scale, sigmoid
        self.weight, self.imbalance, self.pressure = 0.1, 0.0, 0.0

    def update(self, active):
        mean, seen = statistics.fmean(active), 0.0
        if len(active) > 1 and mean:
            variation = statistics.pstdev(active) / mean / math.sqrt(len(active) - 1)
            seen = min(1.0, variation) * max(active) / (max(active) + self.scale)
        self.imbalance += 0.2 * (seen - self.imbalance)
        self.pressure += 0.2 * (min(active) / (min(active) + self.scale) - self.pressure)
        most = 0.9 - self.pressure * 0.4
        low, high = logistic(8 * (0 - 0.35)), logistic(8 * (1 - 0.35))
        if self.sigmoid:
            target = 0.1 + (logistic(8 * (self.imbalance - 0.35)) - low) / (high - low) * (most - 0.1)
        elif self.imbalance > 0.35:
            target = self.weight + 0.1
        elif self.imbalance < 0.175:
            target = 0.1 + 0.9 * (self.weight - 0.1)
        else:
            target = self.weight
        step = min(max(target, 0.1), most) - self.weight
        self.weight += min(max(step, -0.1), 0.1)


@given(seeds, st.sampled_from(["dynamo-two-tier-adaptive", "aimd", "sigmoid"]), st.sampled_from([1.0, 8.0]))
def test_weights_follow_the_loads(seed, policy, scale):
    fleet, adaptive = Fleet(seed), policy == "dynamo-two-tier-adaptive"
    model = Adaptive(scale) if adaptive else Controller(scale, policy == "sigmoid")
    own = {} if adaptive else {"controller": policy}
    made = fleet.router(policy if adaptive else "aimd", load_scale=scale, update_interval_ns=100 * MS, **own)
    updated = None
    for number in map(int, fleet.draw.integers(0, len(fleet.rows), 60)):
        if fleet.draw.random() < 0.5:
            fleet.shake()
        fleet.now_ns += int(fleet.draw.choice([0, 60, 99, 100, 250])) * MS
        sequence = fleet.request(number)
        if updated is None or fleet.now_ns - updated >= 100 * MS:
            updated = fleet.now_ns
            model.update([machine.requests for machine in fleet.machines])
        blocks = -(-sequence.prompt_num_tokens // BLOCK)
        costs = weighed(fleet, model.weight, scale, [found / blocks for found in fleet.found])
        chosen = made.choose(sequence)
        assert costs[chosen] == pytest.approx(min(costs), abs=1e-9)
        if adaptive and sorted(costs)[:2] != pytest.approx([min(costs)] * 2, abs=1e-9):
            assert chosen == costs.index(min(costs))


def test_the_adaptive_mode_by_hand():
    """Imbalance 0.5 gives weight 0.5: costs 0.5, 0.25, 0.375. At weight 0.1 the first would cost 0.9."""
    fleet = fleet_of(0, 32, 16)
    router = fleet.router("dynamo-two-tier-adaptive", load_scale=32.0)
    assert choose(fleet, router, [0, 10, 5]) == 1
    assert choose(fleet, router, [5, 10, 5]) == 0  # 0.25 and 0.25: the first of equals


def test_aimd_by_hand():
    """Eight updates leave the weight at 0.1, then 0.2, 0.3, …: machine 0, then 2, then 1."""
    model = Controller(8.0, False)
    for weight, imbalance in zip(
        [0.1] * 8 + [0.2, 0.3],
        [0.0839, 0.1510, 0.2047, 0.2476, 0.2820, 0.3095, 0.3315, 0.3491, 0.3631, 0.3744],
        strict=True,
    ):
        model.update([8, 0, 1])
        assert (model.weight, model.imbalance) == pytest.approx((weight, imbalance), abs=5e-5)
    fleet = fleet_of(8, 0, 1, tokens=4 * BLOCK)
    router, chosen = fleet.router("aimd"), []
    for _ in range(18):
        chosen.append(choose(fleet, router, [2, 0, 1]))
        fleet.now_ns += 100 * MS
    # Costs 0.5, 1 − w and 0.75 − 0.6875 w: machine 2 from w = 0.364 on, machine 1 from 0.8 on.
    assert chosen[:14] + chosen[15:] == [0] * 10 + [2] * 4 + [1] * 3


def test_ties_of_aimd_are_drawn_and_a_decode_pool_has_no_cache():
    fleet = fleet_of(0, 0, 0)
    router = fleet.router("aimd")
    counts = Counter(choose(fleet, router, [0, 0, 0]) for _ in range(900))
    assert sorted(counts) == [0, 1, 2]
    assert min(counts.values()) > 230
    fleet.parts["decodes"] = True
    assert drawn(fleet, fleet.router("aimd"), [10, 0, 0]) == {0, 1, 2}


# --- Dynamo's linear cost


@pytest.mark.parametrize(("credit", "chosen"), [(1.0, 1), (1.5, 0), (2.5, 0)])
def test_a_credit_above_one_keeps_the_floor(credit, chosen):
    """Eight blocks, four on the first machine, where others have five: 9, 7 and 5 to pay there, 8 on the second."""
    fleet = fleet_of(0, 0, 0)
    fleet.given([[0], [1, 2], [3, 4], [5]], [1, 8 * BLOCK, 5 * BLOCK, BLOCK])
    router = fleet.router("dynamo-kv", overlap_credit=credit)
    for number, machine in ((2, 0), (3, 2)):
        router.sent(fleet.request(number), machine)
    sequence = fleet.request(1)
    fleet.found = [4, 0, 0]
    assert router.choose(sequence) == chosen
    assert sequence.expected_prefill_tokens == (8 - fleet.found[chosen]) * BLOCK


@pytest.mark.parametrize(("credit", "chosen"), [(1.0, {2}), (2.5, {0, 2})])
def test_lower_tiers_count_their_part_whatever_the_credit(credit, chosen):
    """Eight blocks: 4 on the GPU; 6 on the CPU; 2 + 4 + 2 on GPU, CPU and disk: 4, 3.5 and 2.5 blocks to pay.

    A credit of two and a half leaves 0, 3.5 and 0.
    """
    parts = [[(0, 0, 4, 0)], [(1, 0, 6, 0)], [(0, 0, 2, 0), (1, 2, 6, 0), (2, 6, 8, 0)]]
    fleet = fleet_of(0, 0, 0, tokens=8 * BLOCK)
    fleet.parts["trees"] = [Copies(own) for own in parts]
    fleet.on_gpu = [4, 0, 2]
    assert drawn(fleet, fleet.router("dynamo-kv", overlap_credit=credit), [4, 6, 8]) == chosen


def test_figures_of_unequal_numbers_of_machines_are_refused():
    rule = _core.GatewayRule.two_tier(32, 1.1, 0.5)
    with pytest.raises(StoreError):
        rule.choose((160, 16), None, [1, 2], [0], 0)
    with pytest.raises(StoreError):
        rule.choose((160, 0), None, [1], [0], 0)
