"""Sections of a scenario: what they take and refuse, their defaults, and how they are written out."""

import json
import pickle
from hashlib import sha256
from math import inf, nan
from pathlib import Path

import pytest
from kvcache_sim.cache.settings import CacheSettings, MovementSettings
from kvcache_sim.scenario.cluster_sections import ScalingSection
from kvcache_sim.scenario.json_schema import json_schema
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.scenario.machine_sections import (
    ReplicaSection,
    SpeculationSection,
    TierSection,
    TiersSection,
)
from kvcache_sim.scenario.quantities import Capacity
from kvcache_sim.scenario.router_section import RouterSection
from kvcache_sim.scenario.schema import (
    CacheSection,
    ChannelSection,
    FetchSection,
    HandoverSection,
    MachineSection,
    PoolsSection,
    ScenarioModel,
    SloSection,
    WriteSection,
)
from kvcache_sim.scenario.section import Section, changed, converted, defaults, keys, parts, plain_values
from kvcache_sim.scenario.trace_section import RetentionSection
from kvcache_sim.serving.settings import HandoverSettings, ReplicaSettings, RouterSettings
from msgspec import NODEFAULT, ValidationError
from msgspec.structs import fields, replace
from support.product.machines import ScalingSettings

SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios").glob("*.yaml"))


def sections(root: type[Section]) -> set[type[Section]]:
    """Return a section and all sections inside it."""
    inside = [
        part
        for key in keys(root).values()
        for part in parts(key.type)
        if isinstance(part, type) and issubclass(part, Section)
    ]
    return {root}.union(*map(sections, inside))


SECTIONS = sorted(sections(ScenarioModel) | sections(MachineSection), key=lambda own: own.__name__)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda own: own.__name__)
def test_numbers_are_finite_and_whole_where_they_count(section):
    """A key that takes a number takes no other kind of one: no infinity, no true, no 1.5 that should be whole."""
    for name, key in keys(section).items():
        kinds = set(map(str, parts(key.type)))
        for value in (nan, inf, -inf, True, "3"):
            if kinds & {"<class 'int'>", "<class 'float'>"} and "<class 'str'>" not in kinds:
                for written in (value, [value], {"gpu": value}):
                    with pytest.raises(ValidationError):
                        converted(section, {name: written})


@pytest.mark.parametrize("section", SECTIONS, ids=lambda own: own.__name__)
@pytest.mark.parametrize("wrong", [3, "x", None, [], True], ids=repr)
def test_what_is_no_mapping_is_no_section(section, wrong):
    with pytest.raises(ValidationError):
        converted(section, wrong)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda own: own.__name__)
def test_every_default_is_a_value_that_may_be_written(section):
    """A default is not checked when a section is made: written out it is."""
    usual = defaults(section)
    for key, value in plain_values(usual).items():
        if not keys(section)[key].required:
            assert getattr(converted(section, {**needed(section), key: value}), key) == getattr(usual, key)


#: A value of each key that must be given.
NEEDED = {
    "bandwidth": "25GB/s",
    "edges": ["cpu->gpu"],
    "when": "priority == 1",
    "at": "1s",
    "do": "lose",
    "mtbf": "1h",
    "capacity": "3 blocks",
    "machines": 1,
    "path": "t.jsonl",
    "gpu_hour": 2.5,
}


def needed(section: type[Section]) -> dict[str, object]:
    """Return a value of each key that a section must have."""
    return {name: NEEDED[name] for name, key in keys(section).items() if key.required}


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_plain_values_are_read_as_the_section_they_were_written_from(path):
    model = load_scenario(path).model
    assert converted(ScenarioModel, plain_values(model)) == model


LIMITS = [
    (CacheSection, "block_size", (1, 2**31 - 1), (0, 2**31, 1.5)),
    (ScenarioModel, "seed", (0, 2**63 - 1), (-1, 2**63, 10**30)),
    (ScenarioModel, "name", ("a", "a" * 64, "9.x_y-z"), ("", "a" * 65, ".a", "a b")),
    (RouterSection, "load_threshold", (1, 1.5, 1e300), (0.99, inf)),
    (RouterSection, "scorers", ({}, {"prefix": 0}, {"queue": 2**31 - 1}), ({"prefix": -1}, {"nobody": 1})),
    (ReplicaSection, "watermark", (0, 0.999), (1, 1.0, -0.1)),
    (ReplicaSection, "gpu_memory_utilization", (0.001, 1), (0, 1.001)),
    (SpeculationSection, "acceptance", (None, [1, 0.5]), ([nan], [True], 0.5)),
    (RetentionSection, "ttl_s", ({}, {"bash": 2.5}), ({"bash": inf}, {"bash": "2.5s"}, {3: 1.0})),
    (SloSection, "ttft", (None, "1ns"), ("0s", 1, "1")),
    (ScalingSection, "interval", ("1ms",), ("999us", None)),
    (ChannelSection, "edges", ([], ["cpu->gpu"]), ("cpu->gpu", [1], None)),
    (WriteSection, "policy", ("back", {"gpu": "back"}), ({"disk": "back"}, {"gpu": 3}, {3: "back"}, 3)),
    (
        TiersSection,
        "cpu",
        (None, {"capacity": "1GiB"}),
        ({}, {"capacity": 1}, {"capacity": "0 blocks"}, "1GiB"),
    ),
]


@pytest.mark.parametrize(
    ("section", "key", "taken", "refused"), LIMITS, ids=lambda own: getattr(own, "__name__", str(own)[:30])
)
def test_limits_of_each_kind_are_kept(section, key, taken, refused):
    for value in taken:
        converted(section, {**needed(section), key: value})
    for value in refused:
        with pytest.raises(ValidationError):
            converted(section, {**needed(section), key: value})


def test_a_section_is_a_value():
    one = CacheSection(policy="lfu")
    assert one == replace(CacheSection(), policy="lfu") != CacheSection()
    assert pickle.loads(pickle.dumps(TiersSection())) == TiersSection()
    assert repr(PoolsSection(decode=2)) == "PoolsSection(prefill=0, decode=2)"
    with pytest.raises(AttributeError):
        one.policy = "lru"
    with pytest.raises(TypeError, match="polcy"):
        CacheSection(polcy="lru")


def test_a_missing_keys_default_depends_on_the_other_keys():
    assert ReplicaSection().max_num_batched_tokens == 8192
    assert ReplicaSection(instant=True).max_num_batched_tokens == 1 << 20
    assert converted(ReplicaSection, {"instant": True}).max_num_batched_tokens == 1 << 20
    assert (
        converted(ReplicaSection, {"instant": True, "max_num_batched_tokens": 7}).max_num_batched_tokens == 7
    )


def test_changed_keys_come_in_the_schemas_order():
    assert changed(HandoverSection(router="random", path="via-cpu")) == ["path", "router"]
    assert changed(RouterSection(scorers={"queue": 1.0})) == ["scorers"]
    assert changed(ReplicaSection()) == []
    assert changed(TierSection(capacity=Capacity(blocks=3))) == ["capacity"]


def test_the_tiers_are_those_of_the_table():
    tiers = converted(TiersSection, {"disk": {"capacity": "4TiB"}})
    assert list(tiers.present) == ["gpu", "disk"]
    others = ("policy", "semantics", "chunk_tokens", "lazy_offload", "kv_ratio", "encode", "decode")
    assert plain_values(tiers)["disk"] == {"capacity": "4TiB"} | dict.fromkeys(others)
    assert TiersSection.__doc__ == TiersSection.__mro__[1].__doc__


def digests() -> dict[str, str]:
    """By section a digest of its keys with their types, limits and defaults, without their meanings."""
    schema, found = json_schema(), {}
    for name, part in {"Scenario": schema, **schema["$defs"]}.items():
        keys = {
            key: {word: own[word] for word in own if word != "description"}
            for key, own in part.get("properties", {}).items()
        }
        found[name] = sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()[:8]
    return found


DIGESTS = """
Scenario:95a532b5 TraceSection:1a90b087 PrefixSection:b346befd CacheSection:c6e16d72
SessionViewSection:8aa32855 PrefixViewSection:b709e239 TiersSection:84ed274a TierSection:4bd6ff49
ReplicaSection:9c04b9ee SpeculationSection:bbebcffb ClusterSection:37a794fd SharedPoolSection:86b31927
AffinitySection:19b7ad81 PoolChannelsSection:4737dc30 PoolsSection:9b83948e RouterSection:4b9e5652
RouterViewSection:f5f4c55c RouterIndexSection:9750b2f4 HandoverSection:e8534808 ChannelSection:ef011b91
FetchSection:957c6c7f
WriteSection:73fb7172 PrefetchSection:52add8d8 FleetSection:46dd992a FleetEventSection:eba4125d
FaultSection:8683071a ScalingSection:1205d2b1 ScheduleSection:20b6b31d WarmupSection:8c875f44
MeasureSection:e148c25a SloSection:228cda0f SloClassSection:9937e293 RetentionSection:91fe275a
TenantsSection:2b243ce0 TenantSection:dd7e2037 ModelsSection:d5a3f25f ServedModelSection:a20f2221
AdaptersSection:6c1a498b CostSection:ba909181 MachineSection:80e9a839
"""


def test_limits_and_defaults_change_on_purpose_alone():
    """A changed limit or default changes what users may write and get: put the new digest here if it is meant."""
    kept = dict(one.split(":") for one in DIGESTS.split())
    assert {name: digest for name, digest in digests().items() if kept.get(name) != digest} == {}


PAIRS = {
    RouterSettings: RouterSection,
    ReplicaSettings: ReplicaSection,
    HandoverSettings: HandoverSection,
    ScalingSettings: ScalingSection,
    CacheSettings: CacheSection,
    MovementSettings: FetchSection,
}
#: Set by other keys: whole prompts of instant replicas, the served model, a time from on and off, no lists.
BY_OTHERS = set(
    """
    max_num_batched_tokens kv_bytes_per_token scheduler_aware_window schedule exclusive
""".split()
)


@pytest.mark.parametrize("settings", PAIRS)
def test_a_setting_has_one_default_in_python_and_in_scenarios(settings):
    written, compared = defaults(PAIRS[settings]), 0
    for field in fields(settings):
        key = next(
            (
                k
                for k in (field.name, *map(field.name.removesuffix, ("_ns", "_tokens")))
                if hasattr(written, k)
            ),
            None,
        )
        if key is None or field.required or key in BY_OTHERS:
            continue
        own = field.default_factory() if field.default is NODEFAULT else field.default
        assert getattr(written, key) == own, key
        compared += 1
    assert compared > 3
