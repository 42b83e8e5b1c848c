"""A default that is written out is the value that a left-out key has; where it is not, an engine says so."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kvcache_sim.scenario.load import Scenario, scenario_from_text
from kvcache_sim.scenario.release_defaults import release_use
from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.scenario.section import Section, defaults, keys, plain_values, section_in

#: Scenarios in which different keys count.
BASES = {
    "defaults": "",
    "blocks": "tiers: {gpu: {capacity: 1000 blocks}}",
    "vllm": "replica: {scheduler: vllm}",
    "sglang": "replica: {scheduler: sglang}\ncache: {block_size: 16}",
    "tiers": "tiers: {gpu: {capacity: 1000 blocks}, cpu: {capacity: 4GiB}, disk: {capacity: 8GiB}}",
    "offload": "cache: {block_size: 16}\ntiers: {cpu: {capacity: 4GiB, semantics: vllm-offload}}",
    "instant": "replica: {instant: true}",
    "host": "replica: {host: vllm-http}",
    "hybrid": "model: gpt-oss-20b\nreplica: {scheduler: vllm, step_time: 'roofline:gpt-oss-20b@h100'}",
    "machines": "cluster: {machines: 3}\nrouter: {policy: kvaware}",
    "pools": "pools: {prefill: 1, decode: 1}",
    "release": "replica: {release: vllm@0.11.0}",
}
#: Keys whose default depends on others, as their meaning says; with instant also the budget of a step.
FOLLOWS = {
    "cache.block_size": "the trace's",
    "cache.semantics": "the scheduler's or the tier's",
    "cluster.machines": "the pools'",
    "router.policy": "the ranks' own balancer",
    "replica.host": "the release's",
}


def written(path: str, value: Any) -> str:
    return f"{path}={json.dumps(value)}"


def every_key(section: type[Section] = ScenarioModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each key that has a default, as its dotted name and the written form of the default."""
    usual = plain_values(defaults(section))
    for name, key in keys(section).items():
        inner = section_in(key.type)
        if inner is not None and isinstance(usual[name], dict) and usual[name]:
            if not any(each.required for each in keys(inner).values()):
                yield from every_key(inner, f"{prefix}{name}.")
        elif not key.required and usual[name] not in ({}, []):
            yield prefix + name, usual[name]


def load(text: str, *overrides: str) -> Scenario:
    return scenario_from_text(text, "base.yaml", Path.cwd(), overrides)


@pytest.mark.parametrize("base", BASES)
def test_written_default_is_the_left_out_value(base: str) -> None:
    text = BASES[base]
    left_out = load(text)
    use = release_use(left_out.model)
    of_release = {} if use is None else use.values
    tried = 0
    for path, default in every_key():
        if tuple(path.split(".")) in left_out.tree.locations or path in FOLLOWS:
            continue
        if (base, path) == ("instant", "replica.max_num_batched_tokens"):
            continue
        tried += 1
        given = load(text, written(path, default))
        if path in of_release and of_release[path] != default:
            section, key = path.split(".")
            assert given.resolved[section][key] == default, path
            continue
        section, _, key = path.partition(".")
        if section == "replica" and key not in left_out.resolved[section]:  # the host's
            assert given.resolved[section][key] == default, path
            continue
        if not left_out.model.replica.instant:  # whose step times are arrays
            assert given.settings == left_out.settings, path
        assert given.resolved == left_out.resolved, path
    assert tried > 80


@pytest.mark.parametrize("seqs", [255, 256, 257])
def test_no_jump_at_a_default(seqs: int) -> None:
    """One sequence more takes the memory of one row of the sampler's warm-up, not of 768."""
    blocks = [
        load("replica: {release: vllm@0.11.0}", f"replica.max_num_seqs={n}")
        .settings.machines[0]
        .tiers[0]
        .capacity_blocks
        for n in (seqs, seqs + 1)
    ]
    row_bytes = 38.4 * 128_256
    per_block = 512 * 131_072
    assert 0 <= blocks[0] - blocks[1] <= row_bytes / per_block + 1
