"""LMCache's server without time: the worked case, a model from its rules, and what is refused."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cli import main
from kvcache_sim.errors import UsageError
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest
from kvcache_sim.workload.trace import Trace
from small_traces import trace_of

SECOND = 10**9


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


class Lru:
    """Keys, the oldest first."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def write(self, key: str) -> None:
        self.keys.append(key)

    def touch(self, key: str) -> None:
        if key in self.keys:
            self.keys.remove(key)
            self.keys.append(key)

    def drop(self, count: int) -> None:
        del self.keys[:count]


class Arc:
    """Keys used once and again, with ghosts of both; the capacity is the most keys seen at a time."""

    def __init__(self) -> None:
        self.once, self.again, self.ghosts_once, self.ghosts_again = (OrderedDict() for _ in range(4))
        self.target, self.most = 0.0, 0

    @property
    def keys(self) -> list[str]:
        return [*self.once, *self.again]

    def write(self, key: str) -> None:
        once, again = len(self.ghosts_once), len(self.ghosts_again)
        if key in self.ghosts_once:
            self.target = min(self.most, self.target + max(1, again / once))
            del self.ghosts_once[key]
        elif key in self.ghosts_again:
            self.target = max(0, self.target - max(1, once / again))
            del self.ghosts_again[key]
        self.once[key] = None
        self.most = max(self.most, len(self.keys))
        self._forget()

    def touch(self, key: str) -> None:
        if key in self.keys:
            self.once.pop(key, None)
            self.again[key] = None
            self.again.move_to_end(key)

    def drop(self, count: int) -> None:
        for _ in range(min(count, len(self.keys))):
            from_once = bool(self.once) and (len(self.once) >= int(self.target) or not self.again)
            kept, ghosts = (self.once, self.ghosts_once) if from_once else (self.again, self.ghosts_again)
            ghosts[kept.popitem(last=False)[0]] = None
        self._forget()

    def _forget(self) -> None:
        while self.ghosts_once and len(self.once) + len(self.ghosts_once) > self.most:
            self.ghosts_once.popitem(last=False)
        while len(self.keys) + len(self.ghosts_once) + len(self.ghosts_again) > 2 * self.most:
            (self.ghosts_again or self.ghosts_once).popitem(last=False)


def modelled(rows, times_s, chunks, policy, window, step_chunks, in_pool=None, chunk=4) -> dict:
    """The figures by the rules, one call after another; every row is whole chunks.

    ``in_pool``: by request the chunks that an engine's pool has, from which on the server looks up.
    """
    kept, hits, stored, lost, second, running = {"lru": Lru, "arc": Arc}[policy](), [], 0, 0, 1, []

    def end(row: list[str]) -> None:
        for key in reversed(row):
            kept.touch(key)

    for row, now, start in zip(rows, times_s, in_pool or [0] * len(rows), strict=True):
        while second <= now:
            if 10 * len(kept.keys) >= 8 * chunks:
                kept.drop(max(1, len(kept.keys) // 5))
            second += 1
        if window and len(running) == window:
            end(running.pop(0))
        end(row[:start])
        found = next((at for at in range(start, len(row)) if row[at] not in kept.keys), len(row))
        end(row[start:found])
        for at in range(found, len(row), step_chunks):
            new = [key for key in row[at : at + step_chunks] if key not in kept.keys]
            if len(kept.keys) + len(new) > chunks:
                lost += len(new)
                continue
            stored += len(new)
            for key in reversed(new):
                kept.write(key)
        running.append(row)
        if not window:
            end(running.pop())
        hits.append(chunk * found)
    for row in running:
        end(row)
    figures = {"hits": hits, "stored_chunks": stored, "lost_chunks": lost}
    return figures | {"final_cpu_chunks": len(kept.keys), "cpu_evictions": stored - len(kept.keys)}


DRAWN = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 9), st.integers(0, 9), st.sampled_from([0, 0.25, 1, 1.5])),
    min_size=2,
    max_size=40,
)


def rows_and_times(drawn) -> tuple[list[list[str]], list[float]]:
    """Return prompts that share a beginning, and their times."""
    rows = [
        [f"{document}.{k}" if k < common else f"own{at}.{k}" for k in range(blocks)]
        for at, (document, blocks, common, _) in enumerate(drawn)
    ]
    times_s = (1 + np.cumsum([gap for *_, gap in drawn])).tolist()
    return rows, [0.0, *times_s[1:]]


@given(DRAWN, st.integers(1, 30), st.sampled_from(["lru", "arc"]), st.integers(0, 4), st.integers(1, 4))
@examples(300)
def test_a_replay_equals_the_rules(drawn, chunks, policy, window, step_chunks):
    rows, times_s = rows_and_times(drawn)
    trace = trace_of(rows, 4, [4 * len(row) for row in rows])
    got = server(trace, times_s, chunks, policy, window=window, step_tokens=4 * step_chunks)
    want = modelled(rows, times_s, chunks, policy, window, step_chunks)
    assert got["first_20_hits"] == want.pop("hits")[:20]
    assert {name: got[name] for name in want} == want
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
    assert main.run([*given_options, "--cpu-chunks", "9", "--disk-chunks", "9"]) == 2
    assert "--disk-chunks: has no effect" in capsys.readouterr().err
    assert main.run([*given_options, "--cpu-chunks", "9", "--max-num-batched-tokens", "256"]) == 0
    assert "512" in capsys.readouterr().out
