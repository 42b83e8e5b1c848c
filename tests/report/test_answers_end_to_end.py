"""Scenario files to answers: compare with replications, cost, reproduce, doctor."""

from importlib import metadata
from pathlib import Path

import pytest
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.metrics.load_run import load_run
from kvcache_sim.report import installation
from kvcache_sim.scenario.load import scenario_from_text

SCENARIO = """name: small
workload: {kind: conversational, requests: 60}
cache: {block_size: 16}
tiers: {gpu: {capacity: 400 blocks}%s}
%s"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpu.yaml").write_text(SCENARIO % ("", ""))
    (tmp_path / "cpu.yaml").write_text(SCENARIO % (", cpu: {capacity: 8GiB}", ""))
    return tmp_path


def simulate(*arguments):
    assert kvsim(["simulate", *arguments, "-q", "--format", "json"]) == 0


def test_a_run_and_a_scenario_are_compared(folder, capsys):
    simulate("-c", "gpu.yaml", "-o", "run")
    capsys.readouterr()
    assert kvsim(["compare", "run", "gpu.yaml"]) == 0
    assert "are identical, request by request" in capsys.readouterr().out
    assert kvsim(["compare", "run", "gpu.yaml", "--repeats", "2"]) == 2


def test_a_run_is_reproduced_and_a_wrong_digest_is_found(folder, capsys):
    simulate("-c", "cpu.yaml", "-o", "run", "--record", "all")
    assert kvsim(["reproduce", "run"]) == 0
    assert "reproduced" in capsys.readouterr().out
    manifest = load_run(folder / "run").manifest
    text = (folder / "run" / "run.json").read_text()
    assert manifest["digest"]["events"] in text
    changed = text.replace(manifest["digest"]["events"], "0" * len(manifest["digest"]["events"]))
    (folder / "run" / "run.json").write_text(changed)
    assert kvsim(["reproduce", "run"]) == 7  # the directory's own checksums notice first


def test_simulate_is_judged_against_a_baseline(folder, capsys):
    simulate("-c", "cpu.yaml", "-o", "with")
    judged = ["simulate", "-q", "--fail-if", "hit_rate < -1%"]
    assert kvsim([*judged, "-c", "gpu.yaml", "-o", "a"]) == 2
    assert "--baseline" in capsys.readouterr().err
    for name, code in (("gpu", 4), ("cpu", 0)):
        assert kvsim([*judged, "-c", f"{name}.yaml", "-o", name, "--baseline", "with"]) == code


@pytest.mark.parametrize(
    ("settings", "remark", "advised"),
    [
        ("model: qwen3-32b, replica: {max_model_len: auto}", "steps take", "=roofline:qwen3-32b@h100"),
        ("model: qwen3-32b, replica: {step_time: h100-llama-3-70b-tp4}", "steps take", "qwen3-32b@h100:tp4"),
        ("model: llama-3.1-8b", "steps take", ""),
        ("model: qwen3-32b, replica: {step_time: h100-qwen3-32b-tp2}", "steps take", ""),
        (
            "model: qwen3-32b, replica: {step_time: 'linear:base=5ms'}, tiers: {gpu: {capacity: 9 blocks}}",
            "steps",
            "",
        ),
        ("model: qwen3-32b, replica: {instant: true}", "steps", ""),
        ("cache: {kv_dtype: fp8}", "steps read", ":kv-fp8, compared with roofline:llama-3.1-8b@h100"),
        ("cache: {kv_dtype: fp8}, replica: {instant: true}", "steps read", ""),
        ("cache: {kv_dtype: fp16}", "steps read", ""),
        (
            "cache: {kv_dtype: fp8}, replica: {step_time: 'roofline:qwen3-32b@h200:tp2,kv-fp8'}",
            "steps read",
            "",
        ),
    ],
)
def test_step_times_of_another_model_or_kv_format_are_remarked_on(settings, remark, advised):
    """With the source to use, and the one to compare with: a set of bf16 KV gains only capacity from fp8."""
    notes = scenario_from_text(f"{{{settings}}}", "x", Path()).notes
    found = [note for note in notes if note.startswith(remark)]
    assert [note.endswith(advised) for note in found] == [True] * bool(advised)


def test_doctor_finds_this_installation_sound(capsys):
    assert kvsim(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "native module" in out
    assert "broken" not in out


def test_doctor_names_the_conflicting_package(monkeypatch, capsys):
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda n: "0.1.3" if n == "kvcache-simulator" else real(n))
    assert kvsim(["doctor"]) == 2
    assert "pip uninstall kvcache-simulator" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("attribute", "value", "verdict"), [("__version__", "9.9", "broken"), ("__release__", False, "warning")]
)
def test_doctor_judges_the_native_build(monkeypatch, attribute, value, verdict):
    monkeypatch.setattr(f"kvcache_sim._core.{attribute}", value)
    assert {f.verdict for f in installation.check_installation() if f.what == "native module"} == {verdict}
