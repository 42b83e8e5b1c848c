"""A trace that is read in windows while it is simulated gives what the same trace read whole gives."""

import gzip
import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from kvcache_sim.base.errors import TraceError
from kvcache_sim.cache.settings import PrefixViewSettings, TierSettings
from kvcache_sim.cli.main import run
from kvcache_sim.metrics.load_run import load_run
from kvcache_sim.model.step_time import StepTimeTable
from kvcache_sim.report.finished import open_runs
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import open_requests, read_requests
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.windows import can_stream
from kvcache_sim.workload.readers import read, stream
from kvcache_sim.workload.readers.stream import NotAlone, TraceStream
from kvcache_sim.workload.trace import Trace
from support.product.reports import find_trace, upper_bound_of

ROWS = 600
BLOCK = 16
BOUND = "upper_bound_token_hit_rate"


def rows(seed: int = 1) -> list[dict]:
    """Prompts of up to a dozen blocks that grow from earlier ones; some ids come back after a long while."""
    random = np.random.default_rng(seed)
    prompts: list[list[int]] = []
    made, time_ms, found = 0, 0, []
    for _ in range(ROWS):
        start = prompts[random.integers(len(prompts))] if prompts and random.random() < 0.7 else []
        start = start[: int(random.integers(len(start) + 1))]
        fresh = [(made + k) * 7_919 for k in range(int(random.integers(1, 5)))]
        made += len(fresh)
        prompts.append([*start, *fresh][:12])
        time_ms += int(random.integers(0, 60))
        found.append(
            {
                "timestamp": time_ms,
                "input_length": len(prompts[-1]) * BLOCK,
                "output_length": int(random.integers(1, 40)),
                "hash_ids": prompts[-1],
            }
        )
    return found


def written(path: Path, lines: list[dict]) -> Path:
    text = "".join(json.dumps(row) + "\n" for row in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    monkeypatch.setattr(read, "WHOLE_ROWS", 50)
    monkeypatch.setattr(stream, "WINDOW_ROWS", 32)


def scenario(trace: Path, *settings: str):
    text = f"trace: {{path: {trace}, block_size: {BLOCK}}}\ncache: {{block_size: {BLOCK}}}\n"
    return scenario_from_text(text, "s.yaml", Path.cwd(), list(settings))


CASES = [
    ["tiers.gpu.capacity=40 blocks"],
    ["tiers.gpu.capacity=1000000 blocks"],
    ["tiers.gpu.capacity=60 blocks", "cache.block_size=4", "cluster.machines=2"],
    ["tiers.gpu.capacity=25 blocks", "cluster.machines=3", "router.policy=longest-prefix"],
    ["tiers.gpu.capacity=25 blocks", "cluster.machines=3", "router.policy=prefill-cost"],
    ["tiers.gpu.capacity=40 blocks", "replica.queue_order=longest-prefix", "cache.scheduler_aware_window=4"],
    ["tiers.gpu.capacity=12 blocks", "replica.max_num_seqs=2", "cache.touch=admission"],
    ["tiers.gpu.capacity=90 blocks", "replica.max_model_len=150"],
]


def test_priorities_of_later_windows_count(tmp_path):
    given = rows()
    for number, row in enumerate(given):
        if number > 100:  # none in the first windows
            row["priority"] = -number
    found = {}
    for order in ("priority", "fcfs"):
        settings = ["tiers.gpu.capacity=40 blocks", "replica.max_num_seqs=2", f"replica.queue_order={order}"]
        ours = scenario(written(tmp_path / "t.jsonl", given), *settings)
        requests = open_requests(ours, RunOptions())
        assert isinstance(requests, TraceStream)
        found[order] = execute(ours, requests, RunOptions()).run.digest_results
        assert found[order] == execute(ours, read_requests(ours), RunOptions()).run.digest_results
    assert found["priority"] != found["fcfs"]


@pytest.mark.parametrize("settings", CASES, ids=lambda case: " ".join(case))
@pytest.mark.parametrize("check", ["cheap", "full"])
def test_windows_change_no_result(tmp_path, settings, check):
    ours = scenario(written(tmp_path / "t.jsonl", rows()), *settings)
    options = RunOptions(check=check)
    whole = execute(ours, read_requests(ours), options)
    requests = open_requests(ours, options)
    assert isinstance(requests, TraceStream)
    windows = execute(ours, requests, options)
    assert windows.requests == whole.requests == ROWS
    assert windows.run.digest_results == whole.run.digest_results
    assert windows.trace.sha256 == whole.trace.sha256
    assert windows.warnings == whole.warnings
    if "1000000" in settings[0]:  # nothing was forgotten
        assert windows.run.digest_events == whole.run.digest_events
    for name, column in windows.run.requests.items():
        assert np.array_equal(column, whole.run.requests[name]), name


@pytest.mark.parametrize(
    "setting",
    [
        "cache.semantics=vllm",
        "cache.policy=arc",
        "tiers.cpu.capacity=90 blocks",
        "cache.accounting=simplified",
        "replica.instant=true",
        "workload.output_tokens=3",
        "trace.on_bad_row=skip",
    ],
)
def test_what_needs_all_of_the_trace_reads_it_whole(tmp_path, setting):
    ours = scenario(written(tmp_path / "t.jsonl", rows()), "tiers.gpu.capacity=40 blocks", setting)
    assert isinstance(open_requests(ours, RunOptions()), Trace)


@pytest.mark.parametrize("options", [{"causes": True}, {"prefixes": True}, {"engine": "spec"}])
def test_options_that_ask_for_the_trace_again_read_it_whole(tmp_path, options):
    ours = scenario(written(tmp_path / "t.jsonl", rows()), "tiers.gpu.capacity=40 blocks")
    assert isinstance(open_requests(ours, RunOptions(**options)), Trace)


PLAIN = MachineSettings((TierSettings("gpu", 9),), StepTimeTable(np.array([0, 1]), np.array([0, 1])))


@pytest.mark.parametrize(
    ("section", "changed", "streams"),
    [
        (None, {}, True),
        ("cache", {"admission": "prompt"}, True),
        ("replica", {"queue_order": "priority"}, True),
        ("router", {"policy": "least-loaded"}, True),
        ("options", {"check": "full", "times": True}, True),
        ("cache", {"semantics": "vllm"}, False),
        ("cache", {"accounting": "simplified"}, False),
        ("cache", {"groups": object()}, False),
        ("cache", {"prefix_view": PrefixViewSettings(min_tokens=5)}, False),
        ("cache", {"admission": "own.py:Mine"}, False),
        ("router", {"index_blocks": 5}, False),
        ("router", {"index_kind": "estimated"}, False),
        ("router", {"policy": "own.py:Mine"}, False),
        ("router", {"policy": "dynamo-kv"}, False),
        ("options", {"engine": "spec"}, False),
        ("options", {"causes": True}, False),
        ("options", {"prefixes": True}, False),
        ("membership", {"scaling": object()}, False),
        ("machine", {"tiers": (TierSettings("gpu", 9), TierSettings("cpu", 9))}, False),
        ("machine", {"tiers": (TierSettings("gpu", 9, "arc"),)}, False),
        ("machine", {"role": "prefill"}, False),
        ("replica", {"instant": True}, False),
        ("replica", {"speculation": object()}, False),
        ("replica", {"duplicate_prefill": "wait"}, False),
        ("replica", {"queue_order": "own.py:Mine"}, False),
    ],
)
def test_each_part_that_remembers_requests_needs_all_of_the_trace(section, changed, streams):
    """One setting at a time; the second of two machines differs."""
    machine = replace(PLAIN, **changed) if section == "machine" else PLAIN
    if section == "replica":
        machine = replace(PLAIN, replica=replace(PLAIN.replica, **changed))
    settings = ClusterSettings((PLAIN, machine), {})
    if section in ("cache", "router", "membership"):
        settings = replace(settings, **{section: replace(getattr(settings, section), **changed)})
    options = RunOptions(**changed) if section == "options" else RunOptions()
    assert can_stream(settings, options) is streams


def test_a_short_trace_and_one_of_sessions_are_read_whole(tmp_path):
    ours = scenario(written(tmp_path / "t.jsonl", rows()[:50]), "tiers.gpu.capacity=40 blocks")
    assert isinstance(open_requests(ours, RunOptions()), Trace)
    sessions = [row | {"session_id": "a"} for row in rows()]
    ours = scenario(written(tmp_path / "s.jsonl", sessions), "tiers.gpu.capacity=40 blocks")
    opened = open_requests(ours, RunOptions())
    assert isinstance(opened, Trace)
    assert len(opened) == ROWS


@pytest.mark.parametrize("source", ["t.jsonl", "t.jsonl.gz", "-"])
def test_the_command(tmp_path, monkeypatch, capsys, request, source):
    path = written(tmp_path / ("t.jsonl" if source == "-" else source), rows())
    if source == "-":
        request.addfinalizer(partial(os.dup2, os.dup(0), 0))
        os.dup2(os.open(path, os.O_RDONLY), 0)  # the real standard input, read from its start by each run
    command = ["simulate", source if source == "-" else str(path), "--quiet", "--format", "json"]
    command += ["--set", f"trace.block_size={BLOCK}", "--set", f"cache.block_size={BLOCK}"]
    command += ["--set", "tiers.gpu.capacity=40 blocks", "-o"]
    assert run([*command, str(tmp_path / "windows")]) == 0
    monkeypatch.setattr(read, "WHOLE_ROWS", 10**6)
    if source == "-":
        os.lseek(0, 0, os.SEEK_SET)
    assert run([*command, str(tmp_path / "whole")]) == 0
    windows, whole = load_run(tmp_path / "windows"), load_run(tmp_path / "whole")
    assert windows.manifest["trace"] == whole.manifest["trace"]
    assert windows.manifest["digest"]["results"] == whole.manifest["digest"]["results"]
    assert windows.manifest["config_hash"] == whole.manifest["config_hash"]
    # ids of earlier windows are forgotten: the bound is read from the trace when the run is shown
    assert windows.summary["cache"].pop(BOUND) is None
    bound = whole.summary["cache"].pop(BOUND)
    same = {name: windows.summary[name] == whole.summary[name] for name in ("requests", "cache", "latency")}
    assert all(same.values()), same
    if source != "-":
        [shown] = open_runs([tmp_path / "windows"])
        assert find_trace(shown) == ""
        assert upper_bound_of(shown) == bound > 0
    if source == "t.jsonl":
        monkeypatch.setattr(read, "WHOLE_ROWS", 50)
        assert run(["reproduce", str(tmp_path / "windows")]) == 0
    capsys.readouterr()


def test_a_late_row_of_a_session_has_the_file_read_whole(tmp_path):
    late = rows()
    late[400] |= {"session_id": "a"}
    ours = scenario(written(tmp_path / "t.jsonl", late), "tiers.gpu.capacity=40 blocks")
    requests = open_requests(ours, RunOptions())
    assert isinstance(requests, TraceStream)
    found = execute(ours, requests, RunOptions())
    assert found.run.digest_results == execute(ours, read_requests(ours), RunOptions()).run.digest_results
    again = open_requests(ours, RunOptions())
    assert isinstance(again, TraceStream)
    with pytest.raises(NotAlone, match="row of a session"):
        list(iter(lambda: again.next(np.zeros(0, np.uint32)), None))


def test_a_late_bad_row_is_named_by_its_line(tmp_path):
    late = rows()
    late[400] |= {"input_length": -1}
    ours = scenario(written(tmp_path / "t.jsonl", late), "tiers.gpu.capacity=40 blocks")
    with pytest.raises(TraceError, match=r"t\.jsonl:401:"):
        execute(ours, open_requests(ours, RunOptions()), RunOptions())
