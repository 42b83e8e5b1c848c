"""Rows of one machine under ShareGPT conversations."""

import numpy as np

from support.shared_files import ROOT

SCENARIO = ROOT / "scenarios" / "vllm-rtx4090.yaml"


WORKLOAD = "traces/sharegpt_llama31_8b_300_b16.jsonl"


def crowded_rows(count: int = 60) -> list[dict]:
    """Return requests that overflow a small pool many times; every third begins as the one before it."""
    draw = np.random.default_rng(5)
    rows, ids, known = [], list(range(8)), 8
    for i in range(count):
        length = int(draw.integers(20, 900))
        full = length // 16
        if i % 3:
            ids = ids[: int(draw.integers(0, 8))]
        ids = [*ids, *range(known, known + full)][:full]
        known += full
        rows.append(
            {
                "timestamp": round(i * 35.7, 1),
                "input_length": length,
                "output_length": int(draw.integers(1, 400)),
                "hash_ids": ids,
            }
        )
    return rows
