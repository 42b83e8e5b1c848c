"""Layouts of cache groups, and requests of the recorded rows."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
from hypothesis import strategies as st
from kvcache_sim.model.kv_groups import KvGroup, KvLayout
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.workload.readers import read_trace
from kvcache_sim.workload.toolbox.transforms import head

from support.product.machines import group_settings
from support.shared_files import DATA, shared
from support.small_traces import trace_of


@cache
def conversation(n_requests: int):
    trace = read_trace(shared("traces/conversation_trace.jsonl"))
    return trace if n_requests == len(trace) else head(trace, n_requests)


@cache
def stream(seed: int):
    """One of the adversarial streams: documents of shared blocks, the rest of a prompt its request's own."""
    streams = json.loads(shared("oracles/vllm_scheduler_lcg_streams.json").read_text())
    (requests,) = (row["requests"] for row in streams if row["seed"] == seed)
    rows = []
    for i, (_, n, _, document, common) in enumerate(requests):
        shown = range(n // 16)
        rows.append([document * 1000 + k if k < common else 1_000_000 + 1000 * i + k for k in shown])
        rows[-1] += [f"partial{i}"] * (n % 16 > 0)
    names = list(dict.fromkeys(name for row in rows for name in row))
    trace = trace_of(rows, 16, [r[1] for r in requests], None, [r[2] for r in requests])
    return replace(trace, id_names=np.array(names, object))


def row_request(row: dict) -> ReplayRequest:
    settings = group_settings(
        "vllm",
        str(DATA / f"models/{row['model']}.toml"),
        row["hash_block_size"],
        row["max_num_batched_tokens"],
        json.dumps(row["retention_interval"]),
    )
    trace = stream(row["seed"]) if row["trace"] == "lcg" else conversation(row["n_requests"])
    return ReplayRequest(
        trace, 16, row["capacity_blocks"], window=row["window"], outputs="computed", groups=settings
    )


@st.composite
def layouts(draw, kinds=("full", "sliding", "chunked", "linear")):
    """Groups of any kinds and blocks, those of a kind with one block; blocks need not divide the trace's."""
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3, unique=True))
    base = draw(st.sampled_from([1, 2, 3, 4, 6]))
    groups = []
    for kind in chosen:
        # Chunks and states stand at the common block in the engine.
        size = base * (1 if {"chunked", "linear"} & set(chosen) else draw(st.sampled_from([1, 2, 4])))
        reach = 0
        if kind == "sliding":
            reach = draw(st.integers(1, 30))
        elif kind == "chunked":
            reach = size * draw(st.integers(1, 6))
        groups += [KvGroup(kind, size, reach, (0,))] * draw(st.integers(1, 3))
    return KvLayout(tuple(draw(st.permutations(groups))), 1, 1)
