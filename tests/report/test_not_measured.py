"""An engine on a GPU without measured runs: said before any figure, with a wide interval."""

import json

import kvcache_sim as kv
import pytest
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.metrics.certainty import CERTAIN, NOT_MEASURED

WORDS = "step times: not measured on MI300X with SGLang: roofline (MI300X TP2) with host sglang: ×0.33–3.00"
LINE = "python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 2"
SCENARIO = """trace: {{path: trace.jsonl}}
model: qwen3-32b
replica: {{step_time: "roofline:qwen3-32b@{gpu}:tp2", scheduler: {engine}}}
cache: {{semantics: {engine}, block_size: 16}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rows = (
        {"timestamp": n * 900, "input_length": 600, "output_length": 8, "hash_ids": [n, n + 99]}
        for n in range(9)
    )
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for gpu in ("mi300x", "h200", "l40"):
        for engine in ("sglang", "vllm"):
            (tmp_path / f"{gpu}-{engine}.yaml").write_text(SCENARIO.format(gpu=gpu, engine=engine))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_its_report_and_its_intervals_begin_with_it(folder, capsys):
    assert kvsim(["simulate", "-c", "mi300x-sglang.yaml", "-o", "run", "--sensitivity", "-q"]) == 0
    summary = json.loads((folder / "run" / "summary.json").read_text())
    assert summary["step_times"]["source"].startswith(NOT_MEASURED)
    assert (summary["step_times"]["factor_low"], summary["step_times"]["factor_high"]) == (1 / 3, 3)
    for name, (metric, _) in CERTAIN.items():
        group, _, figure = metric.partition(".")
        value = summary[group]
        for part in figure.split("."):
            value = value[part]
        ends = summary["certainty"][name]
        assert (ends["model_low"], ends["model_high"]) == pytest.approx((value / 3, 3 * value)), name
    capsys.readouterr()
    assert kvsim(["explain", "run"]) == 0
    assert WORDS in " ".join(capsys.readouterr().out.split())
    assert kvsim(["report", "run", "-o", "page.html"]) == 0
    assert WORDS in (folder / "page.html").read_text()


def test_capacity_and_python_say_it_before_the_first_figure(folder, capsys):
    asked = ["capacity", "trace.jsonl", "-c", "mi300x-sglang.yaml", "--max-rate", "2/s", "-q"]
    assert kvsim([*asked, "--slo", "ttft=2s", "-o", "found"]) == 0
    assert capsys.readouterr().out.startswith(WORDS)
    assert str(kv.simulate("trace.jsonl", "mi300x-sglang.yaml")).startswith(f"<Run {WORDS}")
    measured = str(kv.simulate("trace.jsonl", "h200-sglang.yaml"))
    assert NOT_MEASURED not in measured
    assert measured.index("TTFT") < measured.index("step times")


@pytest.mark.parametrize(
    ("gpu", "engine", "expected"),
    [
        ("l40", "vllm", "L40 with vLLM"),
        ("l40", "sglang", "L40 with SGLang"),
        ("h200", "vllm", ""),
        ("h200", "sglang", ""),
    ],
)
def test_the_engine_of_the_machine_and_its_gpu_decide(folder, gpu, engine, expected):
    source = kv.simulate("trace.jsonl", f"{gpu}-{engine}.yaml").summary["step_times"]["source"]
    assert source.startswith(f"{NOT_MEASURED} {expected}: ") if expected else NOT_MEASURED not in source


@pytest.mark.parametrize("gpu", ["mi300x", "h200"])
def test_init_says_it_in_its_first_line(gpu, capsys):
    known = gpu == "h200"
    assert kvsim(["init", "--from", LINE, "--gpu", gpu]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == (
        f"# Made from: {LINE}" if known else "# step times: not measured on MI300X with SGLang: ×0.33–3.00"
    )


def test_a_source_that_was_fitted_on_its_gpu_is_measured(folder):
    assert (
        "fitted set"
        in kv.simulate("trace.jsonl", **{"tiers.gpu.capacity": "900 blocks"}).summary["step_times"]["source"]
    )
