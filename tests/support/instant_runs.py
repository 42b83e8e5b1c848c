"""Runs without service time, and prompts along branching texts for them."""

from pathlib import Path

from hypothesis import strategies as st
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from kvcache_sim.workload.trace import Trace

from support.small_traces import trace_of

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
    rows = [[*ids, 10**6 + k] for k, (ids, _, _) in enumerate(requests)]
    _, prompts, outputs = zip(*requests, strict=True)
    return trace_of(rows, B, prompts, None, outputs)
