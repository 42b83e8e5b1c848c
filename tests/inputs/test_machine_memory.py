"""Blocks, context and shared step times of machines in scenarios of drawn settings."""

import random

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario.load import scenario_from_text

SETTINGS = {
    "model": ["llama-3.1-8b", "llama-3.1-8b", "qwen3-8b", "gpt-oss-20b"],
    "replica.step_time": """
        roofline:llama-3.1-8b@h100 roofline:llama-3.1-8b@rtx4090 roofline:llama-3.1-8b@b200:tp2
        h100-llama-3.1-8b-tp1
    """.split(),
    "tiers.gpu.capacity": ["auto", "auto", "9 blocks", "900 blocks", "3GiB", "90GiB", "unbounded"],
    "cache.block_size": ["16", "64"],
    "cache.accounting": ["", "", "", "simplified"],
    "cache.semantics": ["", "", "vllm"],
    "cache.kv_bytes_per_token": ["", "", "", "", "100kB"],
    "replica.instant": ["", "", "true"],
    "replica.scheduler": ["", "", "", "", "sglang"],
    "replica.max_model_len": ["", "", "auto", "144", "145", "8192", "131072", "131073"],
    "replica.allow_long_max_model_len": ["", "", "", "", "true"],
    "replica.max_num_batched_tokens": ["", "", "2048"],
    "replica.max_num_seqs": ["", "", "77"],
    "replica.gpu_memory_utilization": ["", "", "0.7"],
    "replica.release": ["", "", "vllm@0.8.4"],
    "cluster.machines": ["2"],
    "machines[0].replica": ["", "{max_num_batched_tokens: 999}", "{max_num_seqs: 9}", "{step_overhead: 3us}"],
}


def drawn(seed: int) -> list[str]:
    draw = random.Random(seed)
    found = {key: draw.choice(values) for key, values in SETTINGS.items()}
    return [f"{key}={value}" for key, value in found.items() if value]


def found_for(settings: list[str], folder) -> str:
    """Return a scenario's machines as they are simulated, or the line that refuses it."""
    try:
        scenario = scenario_from_text("workload: {kind: diverse, requests: 3}\n", "s", folder, settings)
    except UsageError as refusal:
        return str(refusal)
    machines = scenario.settings.machines
    held = [f"{one.tiers[0].capacity_blocks} blocks, {one.replica.max_model_len} tokens" for one in machines]
    times = len({id(one.step_time) for one in machines})
    memory = scenario.gpu_capacity
    lines = [f"{' | '.join(held)}; {times} step times"]
    return "\n  ".join([*lines, *([] if memory is None else [f"{memory.exceeds}: {memory.sentence}"])])


@pytest.mark.parametrize("part", range(2))
def test_blocks_and_context_of_drawn_machines(part, tmp_path, snapshot):
    cases = [drawn(seed) for seed in range(40 * part, 40 * part + 40)]
    assert "\n".join(f"{' '.join(case)}\n  {found_for(case, tmp_path)}" for case in cases) == snapshot


SET, ROOFLINE = "h100-llama-3.1-8b-tp1", "roofline:llama-3.1-8b@h100:tp2"


@pytest.mark.parametrize(
    ("step_time", "own", "shares"),
    [
        (SET, "step_overhead: 3us", True),
        (SET, "max_num_batched_tokens: 999", True),
        (SET, "step_overhead_per_sequence: 2us", False),
        (SET, "launch_per_layer: 3us", False),
        (ROOFLINE, "max_num_seqs: 9", True),
        (ROOFLINE, "links: pcie5", False),
        (ROOFLINE, "sustained_clocks: false", False),
        (ROOFLINE, "sampling: plain", False),
        (ROOFLINE, "sampler: fused", False),
        ("instant", "gpu_memory_utilization: 0.5", True),
        ("instant", "max_num_seqs: 9", False),
        ("instant", "max_num_batched_tokens: 9", False),
    ],
)
def test_machines_share_step_times_that_are_alike_in_all_that_is_added(tmp_path, step_time, own, shares):
    common = "replica.instant=true" if step_time == "instant" else f"replica.step_time={step_time}"
    settings = [
        common,
        "cluster.machines=2",
        "tiers.gpu.capacity=900 blocks",
        f"machines[0].replica={{{own}}}",
    ]
    scenario = scenario_from_text("workload: {kind: diverse, requests: 3}\n", "s", tmp_path, settings)
    first, second = (machine.step_time for machine in scenario.settings.machines)
    assert (first is second) == shares
