"""``cache.semantics: vllm`` in timed runs: the pool's own rules, to the integer."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.simulation import simulate
from support.clusters import cluster
from support.shared_files import shared
from support.traces import random_trace


def vllm(tiers: tuple[int, ...], machines: int = 1) -> ClusterSettings:
    settings = cluster(tiers, machines)
    return replace(settings, cache=replace(settings.cache, semantics="vllm"))


def test_a_block_is_found_from_its_scheduling_on_as_the_tree_finds_it_only_when_computed():
    trace = random_trace(2)
    found = {
        semantics: simulate(settings, trace).requests["cached_prefix_length_used"].sum()
        for semantics, settings in (("tree", cluster((5000,))), ("vllm", vllm((5000,))))
    }
    assert found["vllm"] > found["tree"]


@pytest.mark.parametrize(
    ("block", "blocks", "mode"), [(16, 524_288, "PO1"), (16, 32_768, "P"), (512, 1024, "PO1")]
)
def test_an_instant_replay_gives_the_real_block_managers_integers(block, blocks, mode, tmp_path):
    rows = json.loads(shared("oracles/vllm_kvcachemanager.json").read_text())
    known = next(
        r
        for r in rows
        if (r["block_size"], r["capacity_blocks"], r["output_mode"], r["window"]) == (block, blocks, mode, 0)
        and r["trace"] == "conversation"
    )
    sets = ["replica.instant=true", f"cache.block_size={block}", f"tiers.gpu.capacity={blocks} blocks"]
    sets += ["workload.output_tokens=1"] if mode == "P" else []
    command = [
        sys.executable,
        "-m",
        "kvcache_sim",
        "simulate",
        str(shared("traces/conversation_trace.jsonl")),
    ]
    for change in sets:
        command += ["--set", change]
    done = subprocess.run(
        [*command, "--format", "json", "-o", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=True,
    )
    summary = json.loads(done.stdout)
    assert summary["tokens"]["cached"] == known["hit_tokens"]
    assert summary["cache"]["evictions"]["gpu"] == known["evictions"]
