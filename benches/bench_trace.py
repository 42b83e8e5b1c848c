"""Reading and describing traces; needs the shared conversation trace, skipped without it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from kvcache_sim._core import TraceSource
from kvcache_sim.workload.readers import ReadSettings, read_trace
from kvcache_sim.workload.readers.json_rows import MOONCAKE_ROWS, raw_settings
from kvcache_sim.workload.toolbox.stats import trace_stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from round_times import round_s
from support.shared_files import shared


@pytest.fixture(scope="module")
def sixteen(tmp_path_factory):
    """The conversation trace sixteen times over: 48 MB."""
    path = tmp_path_factory.mktemp("bench") / "sixteen.jsonl"
    path.write_bytes(shared("traces/conversation_trace.jsonl").read_bytes() * 16)
    return path


def test_mooncake_parsing(benchmark, sixteen):
    """Target: at least 300 MB/s, hashing included."""
    settings = raw_settings(ReadSettings(time_order="keep"), 512)
    benchmark(lambda: TraceSource(str(sixteen)).read_jsonl(MOONCAKE_ROWS, settings))
    benchmark.extra_info["MB/s"] = os.path.getsize(sixteen) / round_s(benchmark) / 1e6


def test_read_conversation_trace(benchmark):
    path = shared("traces/conversation_trace.jsonl")
    benchmark(lambda: read_trace(path))


def test_read_weka_sessions(benchmark):
    path = shared("traces/weka_agentic_dev.jsonl.gz")
    benchmark.pedantic(lambda: read_trace(path), rounds=3)


def test_statistics_of_the_conversation_trace(benchmark):
    """The part of the command after start-up and reading; the whole command may take 0.5 CPU s."""
    trace = read_trace(shared("traces/conversation_trace.jsonl"))
    benchmark(lambda: trace_stats(trace))
