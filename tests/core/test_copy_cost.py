"""Copies to and from the gpu take time from the steps: by the piece, exactly, so that a cpu tier can lose."""

import json

import kvcache_sim as kv
import numpy as np
import pytest

LAYERS = 32
BLOCK = 16
STEP = "linear:base=10ms"
#: Copies that take no time on their link.
FREE = {
    name: {
        "bandwidth": "1TB/s",
        "latency": "0ns",
        "piece_overhead": "0ns",
        "edges": [name.replace("-to-", "->")],
    }
    for name in ("gpu-to-cpu", "cpu-to-gpu")
}


def moments(tmp_path, rows, gpu_blocks=1000, channels=FREE, **replica):
    """Return first and last token of each (ms, prompt, output, blocks) request in ms since its arrival."""
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in rows))
    tiers = {"gpu": {"capacity": f"{gpu_blocks} blocks"}, "cpu": {"capacity": "100000 blocks"}}
    found = kv.simulate(
        path,
        tiers=tiers,
        channels=channels,
        replica={"step_time": STEP, **replica},
        **{"write.policy": "through", "cache.block_size": BLOCK, "trace.block_size": BLOCK},
    ).finished.requests
    return [
        ((first - sent) / 1e6, (last - sent) / 1e6)
        for sent, first, last in zip(
            found["arrival_ns"], found["first_token_ns"], found["finish_ns"], strict=True
        )
    ]


def test_the_next_step_waits_until_its_copies_are_submitted(tmp_path):
    """Ten full blocks are written through after the first step: 320 pieces of 2 us before the second."""
    rows = [(0, 10 * BLOCK, 3, list(range(10)))]
    assert moments(tmp_path, rows) == [(10.0, 30.0)]
    assert moments(tmp_path, rows, copy_submit="2us") == [(10.0, 30.0 + 10 * LAYERS * 0.002)]


def test_a_kernels_share_is_that_of_the_time_on_the_link(tmp_path):
    """Ten blocks at 1 GB/s, a quarter of the gpu."""
    slow = {name: {**own, "bandwidth": "1GB/s"} for name, own in FREE.items()}
    per_layer_ns = -(-10 * BLOCK * 131072 // LAYERS)
    rows = [(0, 10 * BLOCK, 3, list(range(10)))]
    found = moments(tmp_path, rows, channels=slow, copy_gpu_share=0.25)
    assert found == [(10.0, pytest.approx(30.0 + 0.25 * LAYERS * per_layer_ns / 1e6, abs=1e-6))]


def test_a_load_is_submitted_before_the_step_that_needs_it(tmp_path):
    """The third prompt finds nine blocks on the cpu; a whole prompt's last block is computed again.

    What is written after a request's last step is submitted while nothing runs.
    """
    rows = [
        (0, 10 * BLOCK, 1, list(range(10))),
        (1000, 10 * BLOCK, 1, list(range(100, 110))),
        (2000, 10 * BLOCK, 1, list(range(10))),
    ]
    loaded = moments(tmp_path, rows, gpu_blocks=10)
    charged = moments(tmp_path, rows, gpu_blocks=10, copy_submit="2us")
    extra = [after[0] - before[0] for before, after in zip(loaded, charged, strict=True)]
    assert extra == pytest.approx([0.0, 0.0, 9 * LAYERS * 0.002], abs=1e-3)  # 0.6 us of the load are hidden


@pytest.mark.parametrize(("model", "loses"), [("qwen3-0.6b", True), ("qwen3-8b", False)])
def test_offload_on_an_l40s_loses_for_a_small_model_and_wins_for_a_large_one(tmp_path, model, loses):
    """Twenty prefixes of 4,000 tokens that a gpu of 1,500 blocks cannot keep, copies submitted one by one.

    A published study of an L40S: TTFT from +53 % for a model of 0.6B to -40 % for one of 8B.
    """
    draw = np.random.default_rng(1)
    rate = 10.0 if loses else 1.5
    sent = np.cumsum(draw.exponential(1000 / rate, 120))
    rows = []
    for number, time in enumerate(sent.tolist()):
        prefix = 1000 * int(draw.integers(20))
        own = 10**6 + 13 * number
        blocks = [*range(prefix, prefix + 250), *range(own, own + 13)]
        rows.append({"timestamp": time, "input_length": 4200, "output_length": 30, "hash_ids": blocks})
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def ttft(**settings):
        return kv.simulate(
            path,
            **{"replica.step_time": f"roofline:{model}@l40s", "tiers.gpu.capacity": "1500 blocks"},
            **{"cache.block_size": BLOCK, "trace.block_size": BLOCK, **settings},
        ).summary["latency"]["ttft"]["avg"]

    channels = {f"{a}-to-{b}": {"preset": "pcie4-x16"} for a, b in (("gpu", "cpu"), ("cpu", "gpu"))}
    offload = {"tiers.cpu.capacity": "100GiB", "channels": channels, "write.policy": "through"}
    alone, free = ttft(), ttft(**offload)
    charged = ttft(**offload, **{"replica.host": "copies-one-by-one"})
    assert free < 0.7 * alone
    assert (charged > 1.2 * alone) if loses else (charged < 0.6 * alone)
