"""Settings that a store cannot apply are refused in one line, the same from Python as from YAML."""

import re
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

#: (settings of the cache, the one that is refused and why); the YAML key has the same name.
REFUSED = [
    ({"semantics": "vllm", "scheduler_aware_window": 2}, "scheduler_aware_window", "rules of its own"),
    ({"semantics": "vllm", "discard_on_finish": True}, "discard_on_finish", "keeps every block that fits"),
    ({"semantics": "vllm", "admission": "prompt"}, "admission", "keeps every block that fits"),
    ({"semantics": "vllm", "touch": "admission"}, "touch", "an order of its own"),
    ({"semantics": "sglang", "scheduler_aware_window": 2}, "scheduler_aware_window", "rules of its own"),
    ({"semantics": "sglang", "discard_on_finish": True}, "discard_on_finish", "keeps every block that fits"),
    ({"semantics": "sglang", "touch": "admission"}, "touch", "an order of its own"),
    ({"accounting": "simplified", "discard_on_finish": True}, "discard_on_finish", "tokens, not blocks"),
    (
        {"accounting": "simplified", "scheduler_aware_window": 2},
        "scheduler_aware_window",
        "tokens, not blocks",
    ),
    ({"accounting": "simplified", "touch": "admission"}, "touch", "tokens, not blocks"),
    ({"accounting": "simplified", "policy": "lfu"}, "policy", "evicts the oldest"),
    ({"accounting": "simplified", "semantics": "vllm"}, "accounting", "rules of its own"),
]


def with_cache(tiers: tuple[int | None, ...] = (160,), **changes: object) -> ClusterSettings:
    settings = cluster(tiers)
    return replace(settings, cache=replace(settings.cache, **changes))


def refusal(settings: ClusterSettings) -> str:
    with pytest.raises(UsageError) as refused:
        simulate(settings, random_trace(1))
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(("changes", "setting", "why"), REFUSED)
def test_a_setting_beyond_the_store_is_refused_from_python_and_from_yaml(changes, setting, why):
    expected = rf"cache\.{setting} has no effect; .*{re.escape(why)}"
    assert re.search(expected, refusal(with_cache(**changes)))
    section = ", ".join(f"{key}: {str(value).lower()}" for key, value in changes.items())
    with pytest.raises(UsageError, match=expected):
        scenario_from_text(
            f"cache: {{{section}}}\ntiers: {{gpu: {{capacity: 160 blocks}}}}", "s.yaml", Path()
        )


@pytest.mark.parametrize(
    ("key", "name"), [("semantics", "vlm"), ("accounting", "simple"), ("touch", "read"), ("full_hit", "skip")]
)
def test_a_name_that_is_no_choice_is_refused_with_those_that_are(key, name):
    said = refusal(with_cache(**{key: name}))
    assert f"cache.{key}" in said
    assert f"got '{name}'" in said
    assert "expected" in said


@pytest.mark.parametrize(
    "changes", [{"semantics": "vllm"}, {"semantics": "sglang"}, {"accounting": "simplified"}]
)
def test_lower_tiers_are_refused(changes):
    assert "machines.0.tiers.cpu has no effect" in refusal(with_cache((90, 200), **changes))


@pytest.mark.parametrize("semantics", ["vllm", "sglang"])
def test_an_engines_gpu_needs_a_bound(semantics):
    settings = with_cache(semantics=semantics)
    tier = replace(settings.machines[0].tiers[0], capacity_blocks=None)
    said = refusal(replace(settings, machines=(replace(settings.machines[0], tiers=(tier,)),)))
    assert "needs a bound" in said
    with pytest.raises(UsageError, match=r"tiers\.gpu\.capacity has no effect; semantics .* needs a bound"):
        scenario_from_text(
            f"cache: {{semantics: {semantics}}}\ntiers: {{gpu: {{capacity: unbounded}}}}", "s.yaml", Path()
        )


def test_an_engines_own_order_takes_no_policy_of_a_tier_and_no_other_name():
    settings = with_cache(semantics="vllm")
    tier = replace(settings.machines[0].tiers[0], policy="fifo")
    said = refusal(replace(settings, machines=(replace(settings.machines[0], tiers=(tier,)),)))
    assert said == "machines.0.tiers.gpu.policy has no effect; semantics vllm has an order of its own"
    assert "expected one of" in refusal(with_cache(semantics="sglang", policy="arc"))


@pytest.mark.parametrize(
    ("view", "changes"),
    [
        ("session_view", {"session_view": SessionViewSettings(max_sessions=3)}),
        ("prefix_view", {"prefix_view": PrefixViewSettings(min_tokens=64)}),
    ],
)
def test_views_do_not_apply_to_an_engines_own_rules(view, changes):
    assert refusal(with_cache(semantics="vllm", **changes)).startswith(f"{view} has no effect")


def test_what_needs_blocks_is_refused_where_tokens_are_counted():
    settings = with_cache(accounting="simplified")
    indexed = replace(settings, router=replace(settings.router, index_blocks=8))
    assert refusal(indexed) == "router.index_blocks has no effect; cache.accounting simplified has no blocks"


def _joins(settings: ClusterSettings) -> ClusterSettings:
    return replace(settings, membership=MembershipPlan((MembershipEvent(10**9, "join", 1),)))


def _hand_over(settings: ClusterSettings) -> ClusterSettings:
    roles = (replace(settings.machines[0], role="prefill"), replace(settings.machines[1], role="decode"))
    return replace(settings, machines=roles, handover=HandoverSettings(path="via-cpu"))


_LAYERED = "membership has no effect; machines whose channels are served layer by layer neither come nor go"
_NO_TREE = "no effect; only the tree's copies below the GPU are read from other machines"
_OFFLOAD = CacheSettings(semantics="vllm", lower_semantics="vllm-offload", block_size_tokens=16)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (_joins(cluster((90, 200), 2, sharing="fair")), _LAYERED),
        (_joins(cluster((90, 200), 2, priority="loads-first")), _LAYERED),
        (
            _joins(replace(cluster((90, 200), 2), movement=MovementSettings(read_buffer_layers=2))),
            _LAYERED,
        ),
        (_hand_over(replace(cluster((90, 200), 2), cache=_OFFLOAD)), f"handover.path has {_NO_TREE}"),
        (
            replace(cluster((90, 200), 2), cache=_OFFLOAD, movement=MovementSettings(lookup="cluster")),
            f"movement.lookup has {_NO_TREE}",
        ),
    ],
)
def test_what_no_scenario_may_say_of_neighbors_is_refused_from_python_too(settings, said):
    assert refusal(settings) == said


def test_machines_may_join_where_no_channel_is_used_that_is_served_layer_by_layer():
    settings = _joins(cluster((160,), 2))
    fair = ChannelSettings("unused", 10**9, sharing="fair")
    run = simulate(replace(settings, channels={"unused": fair}), random_trace(1))
    assert set(run.requests["machine"].tolist()) == {0, 1}
