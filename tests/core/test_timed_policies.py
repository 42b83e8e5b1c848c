"""Eviction policies and plug-ins as the eviction order of a tier of timed runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kvcache_sim.policies.plugins.contract import PolicyViolation
from kvcache_sim.replay.cachesim import simulate_cache
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.workload.trace import Trace
from plain_orders import PolicyStore
from policy_variants import TIMED
from support.agreement import assert_same
from support.clusters import BLOCK, SHAPES, cluster, under
from support.product.models import zero_step_time
from support.product.scenarios import to_yaml
from support.spec_models import simulation_class
from support.spec_store import WholeStoreSimulation
from support.traces import random_trace


def agree(settings, trace):
    """Check the core's run by the specification's over its own store, in the orders of the small models."""
    block = {"block_size_tokens": settings.cache.block_size_tokens}
    own = {"plain_store": type("Store", (PolicyStore,), block)}
    simulation = type("Simulation", (WholeStoreSimulation, simulation_class(settings)), own)
    native = simulate(settings, trace, options=RunOptions(check="full"))
    assert_same(native, simulation(settings, trace, RunOptions(engine="spec-plain")).run())
    assert native.counters["evictions.gpu"] > 0


@pytest.mark.parametrize(("tiers", "through"), SHAPES)
@pytest.mark.parametrize("policy", TIMED)
def test_core_and_specification_agree(policy, tiers, through):
    agree(under(cluster(tiers, 1, through), policy), random_trace(2, requests=80))


def whole_blocks(seed: int) -> Trace:
    """Return prompts of whole blocks and one token, answers of one token: each takes one private block."""
    trace = random_trace(seed)
    tokens = trace.input_tokens // BLOCK * BLOCK + 1
    none = np.full(len(trace), -1, np.int32)
    return replace(trace, input_tokens=tokens, output_tokens=np.ones_like(tokens), session=none)


def instant(policy: str, trace: Trace, capacity: int) -> tuple[int, int]:
    """Return the hit tokens and evictions of a run without service time."""
    replica = ReplicaSettings(1 << 22, 8, instant=True)
    settings = under(cluster((capacity,)), policy)
    still = replace(settings.machines[0], replica=replica, step_time=zero_step_time(1 << 22, 8))
    run = simulate(replace(settings, machines=(still,)), trace)
    return int(run.requests["cached_prefix_length_used"].sum()), run.counters["evictions.gpu"]


@pytest.mark.parametrize("policy", ["lru", *TIMED])
def test_an_instant_run_decides_as_cachesim_does_with_a_block_more(policy):
    trace, capacity = whole_blocks(6), 150
    hits, evictions = instant(policy, trace, capacity + 1)
    replayed = simulate_cache(ReplayRequest(trace, BLOCK, capacity), policy)
    if policy in ("clock", "arc", "s3fifo", "lirs", "s4lru", "wtinylfu", "twoq"):
        # These policies look at insertions between two evictions; a run first evicts for the whole request,
        # when twoq runs out of newcomers and takes from its main list.
        within = {"wtinylfu": 0.05, "twoq": 0.15}.get(policy, 0.03)
        assert hits == pytest.approx(replayed["hit_tokens"], rel=within)
    else:
        assert (hits, evictions) == (replayed["hit_tokens"], replayed["evictions"])
    assert hits > 0 < evictions


def test_every_tier_has_its_own_policy():
    settings, trace = cluster((90, 60, 400)), random_trace(3)
    plain = simulate(under(settings, "lru"), trace)
    for policies in (("lfu", "lru", "lru"), ("lru", "lfu", "lru"), ("lru", "lru", "lfu")):
        run = simulate(under(settings, *policies), trace)
        assert run.digest_events != plain.digest_events
    mixed = under(settings, "arc", "ttl:2s", "lfu")
    agree(mixed, trace)


PLUGINS = '''
from collections import OrderedDict

def rarest(b, now):
    return (b.hits, -b.depth, b.last_use)

def latest(b, now):
    return b.last_use

def first(b, now):
    return b.created

class Recency:
    def __init__(self, tier):
        self.order = OrderedDict()
    def on_insert(self, b, now):
        self.order[b.id] = None
    def on_hit(self, b, now):
        self.order.move_to_end(b.id)
    def victims(self, n, now, pinned):
        free = [k for k in self.order if k not in pinned]
        return free[:n] if len(free) >= n else None
    def on_remove(self, b, now):
        del self.order[b.id]

class Late(Recency):
    """Recency until late in a run, then the answers that ``how`` names."""
    def __init__(self, tier, *, how):
        super().__init__(tier)
        self.how = how
    def victims(self, n, now, pinned):
        there = self.order if now > 205 else ()
        if there and self.how == "refuses":
            return None
        if there and self.how == "unknown":
            return [10**6] * n
        if there and self.how == "pinned":
            return [next(k for k in there if k in pinned)]
        if there and self.how == "newest":
            return [k for k in reversed(there) if k not in pinned][:n]
        return super().victims(n, now, pinned)
    def on_hit(self, b, now):
        if now > 205 and self.how == "raises":
            raise ValueError("no")
        super().on_hit(b, now)
'''


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(PLUGINS)
    return path


@pytest.mark.parametrize(
    ("name", "built_in"), [("rarest", "length-aware"), ("latest", "lru"), ("first", "fifo")]
)
def test_a_plugin_decides_as_the_built_in_policy_of_its_rule(plugins, name, built_in):
    """On the GPU; a class on lower tiers is judged by a function of the same rule (``test_priority_plugins``)."""
    run, own = (
        simulate(under(cluster((160,)), policy), random_trace(2), options=RunOptions(check="full"))
        for policy in (f"{plugins}:{name}", built_in)
    )
    assert_same(run, own)
    assert run.counters["evictions.gpu"] > 0


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("pinned", "held|child|asked"),
        ("unknown", "not resident"),
        ("raises", "ValueError: no"),
        ("refuses", "no victims"),
    ],
)
def test_an_answer_that_breaks_the_contract_is_named(plugins, how, said):
    trace = random_trace(2, requests=300)
    with pytest.raises(PolicyViolation, match=said) as broken:
        simulate(under(cluster((160,)), f"{plugins}:Late(how={how!r})"), trace)
    assert broken.value.exit_code == 1
    assert "Late" in broken.value.where
    assert "ns of simulated time" in broken.value.got


def test_a_victim_with_children_is_replaced_by_its_deepest_descendant(plugins):
    run = simulate(under(cluster((160,)), f"{plugins}:Late(how='newest')"), random_trace(2, requests=80))
    assert any("policy Late on the gpu tier" in warning for warning in run.warnings)


def test_a_scenario_names_a_policy_for_all_tiers_and_for_one(plugins):
    text = "cache: {policy: 'mine.py:rarest'}\ntiers: {gpu: {capacity: 9 blocks}, cpu: {capacity: 1GiB, policy: arc}}"
    scenario = scenario_from_text(text, str(plugins.parent / "s.yaml"), plugins.parent)
    assert [t.policy for t in scenario.settings.machines[0].tiers] == [f"{plugins}:rarest", "arc"]
    again = scenario_from_text(to_yaml(scenario.resolved), "resolved.yaml", Path())
    assert again.settings == scenario.settings
