"""LMCache's server without time: the worked case, a model from its rules, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli import main
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest
from kvcache_sim.workload.trace import Trace
from lmcache_server_model import DRAWN, SECOND, modelled, rows_and_times
from support.examples import examples
from support.small_traces import trace_of


def server(trace: Trace, times_s: list[float], chunks: int, policy: str = "lru", **settings: int) -> dict:
    """Replay requests at their times; a chunk is a block of the trace."""
    timed = replace(trace, arrival_ns=(np.array(times_s) * SECOND).astype(np.int64))
    request = ReplayRequest(timed, trace.block_size, chunks, explain=True, **settings)
    return REPLAYERS["lmcache-server"](request, policy)


@pytest.mark.parametrize("policy", ["lru", "arc"])
@pytest.mark.parametrize(("end_s", "evicted"), [(1.9, 0), (2.0, 20), (2.9, 20), (3.0, 36), (9.0, 36)])
def test_the_worked_case(policy, end_s, evicted):
    """79 of 100 stay; 25 more, of which 21 fit; the loop leaves 80, then 64, then all."""
    rows = [[f"a{k}" for k in range(79)], *([f"b{k}"] for k in range(25)), ["c"]]
    # the last prompt fills no chunk
    trace = trace_of(rows, 4, [4 * 79, *[4] * 25, 3])
    got = server(trace, [0, *[1.5] * 25, end_s], 100, policy)
    assert (got["stored_chunks"], got["lost_chunks"]) == (100, 4)
    assert (got["cpu_evictions"], got["final_cpu_chunks"]) == (evicted, 100 - evicted)


def test_the_chunks_of_a_step_are_written_together_or_not():
    rows = [["a", "b", "c"], ["d", "e"], ["f", "g", "h"], ["f", "g", "h"]]
    together = server(trace_of(rows, 4, [12, 8, 12, 12]), [0, 0.1, 0.2, 0.3], 6)
    # 3 + 2, and 3 more do not fit in the free one
    assert (together["stored_chunks"], together["lost_chunks"], together["hit_tokens"]) == (5, 6, 0)
    assert together["misses"]["not_admitted_tokens"] == 12
    apart = server(trace_of(rows, 4, [12, 8, 12, 12]), [0, 0.1, 0.2, 0.3], 6, step_tokens=4)
    assert (apart["stored_chunks"], apart["lost_chunks"], apart["hit_tokens"]) == (6, 4, 4)


@given(
    DRAWN,
    st.integers(1, 30),
    st.sampled_from(["lru", "arc"]),
    st.integers(0, 4),
    st.integers(1, 4),
    st.sampled_from([0, 5, 40]),
)
@examples(300)
def test_a_replay_equals_the_rules(drawn, chunks, policy, window, step_chunks, disk):
    rows, times_s = rows_and_times(drawn)
    trace = trace_of(rows, 4, [4 * len(row) for row in rows])
    got = server(trace, times_s, chunks, policy, window=window, step_tokens=4 * step_chunks, disk_blocks=disk)
    want = modelled(rows, times_s, chunks, policy, window, step_chunks, None, disk)
    assert got["first_20_hits"] == [4 * found for found in want.pop("hits")[:20]]
    assert got.get("disk_hit_chunks", 0) == sum(want.pop("from_disk"))
    assert {name: got[name] for name in want} == want
    echoed = ("cpu_chunks", "chunk_tokens", "step_tokens", "disk_chunks")
    assert [got.get(name, 0) for name in echoed] == [chunks, 4, 4 * step_chunks, disk]
    assert got["misses"]["missed_tokens"] == got["queried_tokens"] - got["hit_tokens"]


def test_a_trace_without_times_is_refused():
    trace = trace_of([["a"], ["a"]], 4, [4, 4])
    with pytest.raises(UsageError, match="the server evicts once a second"):
        server(trace, [0, 0], 9)


def test_options_of_the_other_rules_are_refused(tmp_path, capsys):
    (tmp_path / "t.jsonl").write_text(
        "".join(
            f'{{"timestamp": {k}, "input_length": 512, "output_length": 1, "hash_ids": [1]}}\n'
            for k in (0, 9)
        )
    )
    given_options = ["cachesim", str(tmp_path / "t.jsonl"), "--policy", "lmcache-server:lru"]
    assert main.run([*given_options, "--cpu-chunks", "9", "--host-capacity", "9"]) == 2
    assert "--host-capacity: has no effect" in capsys.readouterr().err
    assert main.run([*given_options, "--cpu-chunks", "9", "--max-num-batched-tokens", "256"]) == 0
    assert "512" in capsys.readouterr().out
