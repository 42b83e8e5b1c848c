"""Settings that a store cannot apply are refused, from Python as from YAML."""

from dataclasses import replace
from pathlib import Path

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache.settings import (
    CacheSettings,
    MovementSettings,
    PrefixViewSettings,
    SessionViewSettings,
)
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.serving.membership.plan import MembershipEvent, MembershipPlan
from kvcache_sim.serving.settings import ClusterSettings, HandoverSettings
from kvcache_sim.simulation import simulate
from support.clusters import cluster
from support.traces import random_trace

VLLM, SGLANG, TOKENS = {"semantics": "vllm"}, {"semantics": "sglang"}, {"accounting": "simplified"}
#: Settings of the cache, and the one that is refused; the YAML key has the same name.
REFUSED = [
    *((kind | {"scheduler_aware_window": 2}, "scheduler_aware_window") for kind in (VLLM, SGLANG, TOKENS)),
    *((kind | {"discard_on_finish": True}, "discard_on_finish") for kind in (VLLM, SGLANG, TOKENS)),
    *((kind | {"touch": "admission"}, "touch") for kind in (VLLM, SGLANG, TOKENS)),
    (VLLM | {"admission": "prompt"}, "admission"),
    (TOKENS | {"policy": "lfu"}, "policy"),
    (TOKENS | VLLM, "accounting"),
]


def with_cache(tiers: tuple[int | None, ...] = (160,), **changes: object) -> ClusterSettings:
    settings = cluster(tiers)
    return replace(settings, cache=replace(settings.cache, **changes))


def with_tier(settings: ClusterSettings, **changes: object) -> ClusterSettings:
    """Return a cluster of one machine with other settings of its GPU."""
    [machine] = settings.machines
    return replace(settings, machines=(replace(machine, tiers=(replace(machine.tiers[0], **changes),)),))


def refusal(settings: ClusterSettings) -> str:
    with pytest.raises(UsageError) as refused:
        simulate(settings, random_trace(1))
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(("changes", "setting"), REFUSED)
def test_a_setting_beyond_the_store_is_refused_from_python_and_from_yaml(changes, setting):
    expected = rf"cache\.{setting} has no effect"
    assert f"cache.{setting} has no effect" in refusal(with_cache(**changes))
    section = ", ".join(f"{key}: {str(value).lower()}" for key, value in changes.items())
    text = f"cache: {{{section}}}\ntiers: {{gpu: {{capacity: 160 blocks}}}}"
    with pytest.raises(UsageError, match=expected):
        scenario_from_text(text, "s.yaml", Path())


@pytest.mark.parametrize("key", ["semantics", "accounting", "touch", "full_hit"])
def test_a_name_that_is_no_choice_is_refused(key):
    said = refusal(with_cache(**{key: "nonsense"}))
    assert f"cache.{key}" in said
    assert "got 'nonsense'" in said


@pytest.mark.parametrize("changes", [VLLM, SGLANG, TOKENS])
def test_lower_tiers_are_refused(changes):
    assert "machines.0.tiers.cpu has no effect" in refusal(with_cache((90, 200), **changes))


@pytest.mark.parametrize("semantics", ["vllm", "sglang"])
def test_an_engines_gpu_needs_a_bound(semantics):
    settings = with_tier(with_cache(semantics=semantics), capacity_blocks=None)
    assert "needs a bound" in refusal(settings)
    text = f"cache: {{semantics: {semantics}}}\ntiers: {{gpu: {{capacity: unbounded}}}}"
    with pytest.raises(UsageError, match=r"tiers\.gpu\.capacity"):
        scenario_from_text(text, "s.yaml", Path())


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        (with_tier(with_cache(**VLLM), policy="fifo"), "machines.0.tiers.gpu.policy"),
        (with_cache(**SGLANG, policy="arc"), "cache.policy"),
        (with_cache(**VLLM, session_view=SessionViewSettings(max_sessions=3)), "session_view"),
        (with_cache(**VLLM, prefix_view=PrefixViewSettings(min_tokens=64)), "prefix_view"),
    ],
)
def test_an_engines_own_rules_take_no_others(settings, setting):
    assert refusal(settings).startswith(setting)


def test_what_needs_blocks_is_refused_where_tokens_are_counted():
    settings = with_cache(**TOKENS)
    indexed = replace(settings, router=replace(settings.router, index_blocks=8))
    assert refusal(indexed).startswith("router.index_blocks has no effect")


def joins(settings: ClusterSettings) -> ClusterSettings:
    return replace(settings, membership=MembershipPlan((MembershipEvent(10**9, "join", 1),)))


def hand_over(settings: ClusterSettings) -> ClusterSettings:
    roles = (replace(settings.machines[0], role="prefill"), replace(settings.machines[1], role="decode"))
    return replace(settings, machines=roles, handover=HandoverSettings(path="via-cpu"))


TWO = cluster((90, 200), 2)
OFFLOAD = replace(
    TWO, cache=CacheSettings(semantics="vllm", lower_semantics="vllm-offload", block_size_tokens=16)
)


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        (joins(cluster((90, 200), 2, sharing="fair")), "membership"),
        (joins(cluster((90, 200), 2, priority="loads-first")), "membership"),
        (joins(replace(TWO, movement=MovementSettings(read_buffer_layers=2))), "membership"),
        (hand_over(OFFLOAD), "handover.path"),
        (replace(OFFLOAD, movement=MovementSettings(lookup="cluster")), "movement.lookup"),
    ],
)
def test_what_no_scenario_may_say_of_neighbors_is_refused_from_python_too(settings, setting):
    assert refusal(settings).startswith(f"{setting} has no effect")


def test_machines_may_join_where_no_channel_is_used_that_is_served_layer_by_layer():
    settings = joins(cluster((160,), 2))
    fair = ChannelSettings("unused", 10**9, sharing="fair")
    run = simulate(replace(settings, channels={"unused": fair}), random_trace(1))
    assert set(run.requests["machine"].tolist()) == {0, 1}
