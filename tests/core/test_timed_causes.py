"""Every token that a timed run missed stands under one cause."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from kvcache_sim.cache.settings import PrefixViewSettings
from kvcache_sim.metrics.miss_causes import keeps_all_blocks, miss_causes, summarize_misses
from kvcache_sim.replay.miss_causes import MISS_CAUSES as CAUSES
from kvcache_sim.simulation import simulate
from kvcache_sim.workload.trace import Trace
from support.clusters import BLOCK, cluster
from support.traces import random_trace

MISS_CAUSES = [cause.name for cause in CAUSES]


def causes_of(settings, trace, kept=True):
    run = simulate(settings, trace)
    columns = miss_causes(run.requests, trace, BLOCK, kept)
    missed = run.requests["input_tokens"] - run.requests["cached_prefix_length_used"]
    missed = np.where(run.requests["status"] == 0, missed, 0)
    assert (sum(columns[f"miss_{cause}_tokens"] for cause in MISS_CAUSES) == missed).all()
    assert all((columns[f"miss_{cause}_tokens"] >= 0).all() for cause in MISS_CAUSES)
    every = np.ones(len(columns["evicted_idle_ns"]), bool)
    return summarize_misses(columns, every, ["lru on gpu"])


def requests(*rows: tuple[int, list[int], int]) -> Trace:
    """Return requests (arrival in ms, ids of four blocks, prompt tokens), answers of one token."""
    n = len(rows)
    return Trace(
        np.array([at * 1_000_000 for at, _, _ in rows], np.int64),
        np.array([tokens for _, _, tokens in rows], np.int64),
        np.ones(n, np.int64),
        np.cumsum([0, *(len(ids) for _, ids, _ in rows)]).astype(np.int64),
        np.array([one for _, ids, _ in rows for one in ids], np.uint32),
        64,
        np.full(n, -1, np.int32),
        np.zeros(n, np.int32),
        np.full(n, -1, np.int64),
        np.zeros(n, bool),
    )


@pytest.mark.parametrize("tiers", [(160,), (5000,), (90, 60, 400)])
@pytest.mark.parametrize("machines", [1, 2])
def test_causes_sum_to_the_misses(tiers, machines):
    found = causes_of(cluster(tiers, machines), random_trace(3))
    assert (found["evicted"] > 0) == (tiers != (5000,))
    assert (found["elsewhere"] > 0) == (machines == 2)


def test_each_cause_where_it_was_planted():
    first = (0, [0, 1], 130)
    cases = {
        "never_seen": (first, (9000, [2, 3], 129)),
        "diverged": (first, (9000, [0, 2], 129)),
        "evicted": (first, (5000, [2, 3], 130), (9000, [0, 1], 129)),
        "not_ready": (first, first),
    }
    for cause, rows in cases.items():
        capacity = 12 if cause == "evicted" else 1000
        found = causes_of(cluster((capacity,)), requests(*rows))
        assert found[cause] > 128 * (cause == "never_seen"), cause
        others = set(MISS_CAUSES) - {cause, "never_seen", "shorter"}
        assert not any(found[other] for other in others), (cause, found)


def test_what_another_machine_has_and_what_is_kept_out():
    rows = [(0, [0, 1], 130), (5000, [0, 1], 130), (9000, [0, 1], 130)]
    assert causes_of(cluster((1000,), 2), requests(*rows))["elsewhere"] == 128  # round robin
    settings = cluster((1000,))
    off = replace(settings, cache=replace(settings.cache, enabled=False))
    assert causes_of(off, requests(*rows), kept=False)["not_admitted"] == 256


def test_the_summary_is_of_the_measured_requests_and_idle_times_are_in_ms():
    columns = {f"miss_{cause}_tokens": np.array([1, 10 + k, 100]) for k, cause in enumerate(MISS_CAUSES)}
    for idle_ns, idle in (
        ([5, 3_000_000, -1], (1, 3.0, 3.0)),
        ([-1, 0, 9_000_000], (2, 4.5, 9.0)),
        ([7, -1, -1], (0, None, None)),
    ):
        columns["evicted_idle_ns"] = np.array(idle_ns)
        found = summarize_misses(columns, np.array([False, True, True]), ["lru on gpu"])
        assert tuple(found.pop("evicted_idle_ms").values()) == idle
        by_cause = {cause: 110 + k for k, cause in enumerate(MISS_CAUSES)}
        assert found == {"tokens": sum(by_cause.values()), **by_cause, "evicted_by": ["lru on gpu"]}


def test_the_command_prints_miss_causes_and_writes_them(tmp_path: Path):
    rows = [
        {"timestamp": 100 * k, "input_length": 1100, "output_length": 3, "hash_ids": [0, k + 1, k + 50]}
        for k in range(9)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [
        sys.executable,
        "-m",
        "kvcache_sim",
        "simulate",
        "t.jsonl",
        "--causes",
        "--format",
        "json",
        "-o",
        "out",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    summary = json.loads(done.stdout)
    missed = summary["tokens"]["input"] - summary["tokens"]["cached"]
    assert summary["misses"]["tokens"] == missed == sum(summary["misses"][cause] for cause in MISS_CAUSES)
    from kvcache_sim.metrics.tables import read_table

    assert read_table(tmp_path / "out" / "requests.parquet")["miss_diverged_tokens"].sum() > 0


@pytest.mark.parametrize(
    ("changes", "keeps"),
    [({}, True), ({"enabled": False}, False), ({"admission": "second-use"}, False), ({"discard_on_finish": True}, False),
     ({"prefix_view": PrefixViewSettings(min_seen=2)}, False)],
)  # fmt: skip
def test_a_cache_keeps_all_blocks_unless_a_setting_leaves_some_out(changes, keeps):
    usual = {
        "enabled": True,
        "admission": "all",
        "prefix_view": PrefixViewSettings(),
        "discard_on_finish": False,
    }
    assert keeps_all_blocks(SimpleNamespace(**usual | changes)) is keeps
