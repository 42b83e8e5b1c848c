"""Copies to and from the gpu take time from the steps: by the piece, exactly, so that a cpu tier can lose."""

import json

import kvcache_sim as kv
import numpy as np
import pytest

BLOCK = 16


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
