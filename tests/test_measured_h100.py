"""Streams that a real vLLM served on an H100: what was said before they ran, and what its sweep makes of them."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import json
import sys
from functools import cache
from pathlib import Path
from statistics import fmean
from types import ModuleType

import pytest
from fidelity_page import figures
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.model.calibration.command import Measured, fit_rows
from kvcache_sim.model.calibration.model_file import Provenance, model_text
from shared_files import ROOT

BENCHES = ROOT / "benches"
MEASURED = BENCHES / "measured"
HEADING = "Runs of vLLM on an H100"
DENSE = ("talks", "talks-salted", "long", "peak")
MIXTURE = ("moe-talks", "moe-peak")


def bench(name: str) -> ModuleType:
    """A module of benches, which are no package."""
    spec = importlib.util.spec_from_file_location(name, BENCHES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@cache
def served(stream: str) -> list[tuple[float, float | None, float, int]]:
    """TTFT, TPOT and E2E in ms and cached tokens of each request, as the engine served it."""
    model = "qwen3-30b-a3b" if stream.startswith("moe") else "llama-3.1-8b"
    found = {}
    with gzip.open(MEASURED / f"h100-{model}-requests.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if row["segment"] == stream:
                came, first, end = (int(row[k]) / 1e3 for k in ("arrival_us", "first_token_us", "finish_us"))
                more = int(row["output"]) - 1
                tpot = (end - first) / more if more else None
                found[int(row["request"])] = (first - came, tpot, end - came, int(row["cached"]))
    return [found[place] for place in sorted(found)]


def means(stream: str) -> list[float]:
    rows = served(stream)
    tpot = [row[1] for row in rows if row[1] is not None]
    return [fmean(row[0] for row in rows), fmean(tpot), fmean(row[2] for row in rows)]


@pytest.mark.parametrize("stream", [*DENSE, *MIXTURE])
def test_what_was_predicted_before_the_run_is_on_the_page(stream):
    measured, *by_source = figures("fidelity.md", HEADING, f"`{stream}`")
    assert measured == [round(means(stream)[0], 1), round(means(stream)[1], 2), round(means(stream)[2])]
    with (MEASURED / "predictions.csv").open() as file:
        said = [row for row in csv.DictReader(file) if row["run"] == stream]
    names = ("mean_ttft_ms", "mean_tpot_ms", "mean_e2e_ms")
    sources = ("h100-llama-3-8b-tp1", "aiconfigurator", "roofline")
    found = {row["source"]: [float(row[name]) for name in names] for row in said}
    for source, stated in zip(sources, by_source, strict=False):  # the last column is of the sweep
        pairs = zip(found.get(source, ()), means(stream), strict=source in found)
        assert stated == pytest.approx([100 * (ours / real - 1) for ours, real in pairs], abs=0.051), source


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("set") / "dense.toml"
    rows = MEASURED / "h100-llama-3.1-8b-iterations.csv.gz"
    fit = fit_rows(Measured(rows, {"segment": "sweep"}, "llama-3.1-8b", "h100"), None)
    path.write_text(model_text(fit.model, Provenance("llama-3.1-8b", "h100", 1, "measured"), []))
    return path


def assert_served(stream: str, step_time: str, blocks: int, stated: list[float], folder: Path) -> None:
    """Check a stream's errors against those stated, and its hits against the engine's to the token."""
    made = bench("vllm_streams")
    trace = folder / "trace.jsonl"
    trace.write_text("\n".join(made.lines(made.STREAMS[stream.removesuffix("-salted")]())) + "\n")
    scenario = {
        "trace": {"path": str(trace), "block_size": 16},
        "cache": {"block_size": 16, "semantics": "vllm", "enabled": not stream.endswith("-salted")},
        "tiers": {"gpu": {"capacity": f"{blocks} blocks"}},
        "replica": {
            "scheduler": "vllm",
            "step_time": step_time,
            "max_num_seqs": 256,
            "max_num_batched_tokens": 8192,
            "async_scheduling": "length",
        },
    }
    (folder / "run.yaml").write_text(json.dumps(scenario))
    assert kvsim(["simulate", "-c", str(folder / "run.yaml"), "-o", str(folder / "run")]) == 0
    summary = json.loads((folder / "run" / "summary.json").read_text())
    latency = summary["latency"]
    found = [
        100 * (latency[k]["avg"] / real - 1)
        for k, real in zip(("ttft", "tpot", "e2e"), means(stream), strict=True)
    ]
    assert found == pytest.approx(stated, abs=0.3)
    assert summary["tokens"]["cached"] == sum(row[3] for row in served(stream))


@pytest.mark.parametrize("stream", DENSE)
def test_a_set_of_the_sweep_alone_serves_the_streams_as_the_page_says(stream, fitted, tmp_path):
    stated = figures("fidelity.md", HEADING, f"`{stream}`")[4]
    assert_served(stream, str(fitted), 28123, stated, tmp_path)


@pytest.mark.parametrize("stream", MIXTURE)
def test_a_roofline_serves_the_mixtures_streams_as_the_page_says(stream, tmp_path):
    """The set of the mixture's own sweep takes 40 s to fit; hits are the same with any times."""
    stated = figures("fidelity.md", HEADING, f"`{stream}`")[3]
    assert_served(stream, "roofline:qwen3-30b-a3b@h100", 8535, stated, tmp_path)


def test_settling_moves_time_to_the_step_that_was_launched_and_keeps_the_sum():
    settle = bench("vllm_settle").settle
    at, rows = 0, []
    for chunk, ms in ((0, 7.0), (0, 7.2), (0, 7.1), (0, 25.0), (512, 4.0), (0, 7.0)):
        rows.append(
            {
                "start_us": str(at),
                "prefill_tokens": str(chunk),
                "decode_requests": "4",
                "decode_kv_tokens": "4000",
                "seen_ms": str(ms),
            }
        )
        at += int(ms * 1000)
    times = settle(rows)
    assert times == pytest.approx([7.0, 7.2, 7.1, 7.1, 21.9, 7.0])
    assert sum(times) == pytest.approx(sum(float(row["seen_ms"]) for row in rows))
    rows[4]["start_us"] = str(int(rows[4]["start_us"]) + 5000)
    assert settle(rows)[3] == 25.0, "a chunk that came later was not launched in that step"
