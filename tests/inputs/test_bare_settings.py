"""A section given as a bare value in Python sets its main key, in every section that has one."""

import kvcache_sim as kv
import pytest
from kvcache_sim.api.settings import MAIN_KEYS
from kvcache_sim.scenario.key_list import key_lines

#: Main key → a value that it takes, with what it needs to matter.
TIERS = {"gpu": "64 blocks", "cpu": "8GiB"}
VALUES = {
    "cache.policy": ("lfu", {}),
    "channels.cpu-to-gpu.preset": ("pcie4-x16", {"tiers": TIERS}),
    "cluster.machines": (2, {}),
    "cluster.pool.capacity": ("16GiB", {"cluster": 2, "tiers": TIERS}),
    "fetch.policy": ("never", {"tiers": TIERS}),
    "fleet.scaling.policy": ("queue", {"cluster": 2}),
    "prefetch.policy": ("none", {}),
    "router.policy": ("round-robin", {"cluster": 2}),
    "tiers.cpu.capacity": ("16GiB", {}),
    "trace.path": ("t.jsonl", {}),
    "workload.kind": ("agentic", {}),
    "write.policy": ("through", {"tiers": TIERS}),
}


def policies() -> set[str]:
    """Return the dotted keys of the schema that end in ``policy``, outside lists and tiers."""
    keys = {line.split()[0] for line in key_lines()}
    return {
        key
        for key in keys
        if key.endswith(".policy") and not key.startswith(("machines", "tiers", "models", "cluster.pool"))
    }


def test_every_section_with_a_policy_takes_its_bare_name() -> None:
    assert {f"{section}.{key}" for section, key in MAIN_KEYS.items() if key == "policy"} == policies()
    assert {key.split(".")[0] for key in VALUES} == {section.split(".")[0] for section in MAIN_KEYS}


@pytest.mark.parametrize("key", VALUES)
def test_a_bare_value_is_the_main_key(key: str) -> None:
    value, needed = VALUES[key]
    *section, _ = key.split(".")
    bare = kv.Scenario(**needed).with_(**{".".join(section): value})
    assert bare == kv.Scenario(**needed).with_(**{key: value})
    nested: object = value
    for name in reversed(section):
        nested = {name: nested}
    assert isinstance(nested, dict)
    assert bare == kv.Scenario(**needed).with_(**nested)


@pytest.mark.parametrize("section", ["handover", "replica", "fleet", "slo", "measure", "tiers"])
def test_a_section_with_several_equal_keys_refuses_a_bare_value(section: str) -> None:
    with pytest.raises(kv.UsageError, match=f"{section}: not usable; got .*; expected a mapping"):
        kv.Scenario(**{section: "some"})
