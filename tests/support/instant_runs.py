"""Runs without service time, and prompts along branching texts for them."""

from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from kvcache_sim.workload.trace import NO_SESSION, OPEN_LOOP, Trace

B = 16
CHEAP = RunOptions()


def instant(text: str, trace: Trace | None = None, options: RunOptions = CHEAP):
    scenario = scenario_from_text(text, "s.yaml", Path.cwd(), ["replica.instant=true"])
    return execute(scenario, read_requests(scenario) if trace is None else trace, options)


@st.composite
def chained_prompts(draw):
    """Prompts along a few branching texts, each ending inside a block, with an output each."""
    texts = [[0]]
    fresh = 1
    requests = []
    for _ in range(draw(st.integers(1, 40))):
        base = texts[draw(st.integers(0, len(texts) - 1))]
        keep = draw(st.integers(1, len(base)))
        grow = draw(st.integers(0, 4))
        ids = base[:keep] + list(range(fresh, fresh + grow))
        fresh += grow
        texts.append(ids)
        requests.append((ids, len(ids) * B + draw(st.integers(1, B - 1)), draw(st.integers(1, 40))))
    return requests


def as_trace(requests: list[tuple[list[int], int, int]]) -> Trace:
    """Return the requests, each with an id of its own for its partial last block."""
    n = len(requests)
    rows = [[*ids, 10**6 + k] for k, (ids, _, _) in enumerate(requests)]
    flat = [name for row in rows for name in row]
    dense = {name: k for k, name in enumerate(dict.fromkeys(flat))}
    return Trace(
        arrival_ns=np.zeros(n, np.int64),
        input_tokens=np.array([prompt for _, prompt, _ in requests], np.int64),
        output_tokens=np.array([output for _, _, output in requests], np.int64),
        id_offsets=np.cumsum([0, *map(len, rows)]).astype(np.int64),
        block_ids=np.array([dense[name] for name in flat], np.uint32),
        block_size=B,
        session=np.full(n, NO_SESSION, np.int32),
        turn=np.zeros(n, np.int32),
        think_ns=np.full(n, OPEN_LOOP, np.int64),
        is_conversational_turn=np.zeros(n, np.bool_),
    )
