"""``kvsim models | gpus | step-times | channels``: list, show, new; and names that are not known."""

import json
from collections import namedtuple
from dataclasses import replace

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli import main
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.model_file import load_model, model_names
from kvcache_sim.model.run_intervals import COMPOSED
from kvcache_sim.model.step_times import load_step_time
from kvcache_sim.report.installation import check_installation
from kvcache_sim.scenario.load import scenario_from_text
from support.product.models import load_channel, measured_on, source_kind
from support.shared_files import DATA

VERBS = {"models": "llama-3-8b", "gpus": "h100", "step-times": "h100-llama-3-8b-tp1", "channels": "pcie5-x16"}
DiskUsage = namedtuple("DiskUsage", "total used free")
CONFIG = DATA / "model_configurations" / "gpt-oss-120b.json"


def test_step_times_are_listed_those_of_real_runs_first(capsys):
    """Sets composed of kernels come last; a set of real runs states its error or why it has none."""
    assert main.run(["step-times", "list", "--json"]) == 0
    names = list(json.loads(capsys.readouterr().out)["step_times"])
    composed = [source_kind(name).source == COMPOSED for name in names]
    assert composed == sorted(composed)
    assert set(composed) == {False, True}


@pytest.mark.parametrize("verb", VERBS)
def test_list_and_show_name_the_packaged_entry_and_speak_json(verb, capsys):
    assert main.run([verb, "list"]) == 0
    assert f"\n{VERBS[verb]} " in "\n" + capsys.readouterr().out
    assert main.run([verb, "list", "--json"]) == 0
    assert VERBS[verb] in json.dumps(json.loads(capsys.readouterr().out))
    assert main.run([verb, "show", VERBS[verb]]) == 0
    assert VERBS[verb] in capsys.readouterr().out
    assert main.run([verb, "show", VERBS[verb], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == VERBS[verb]
    assert main.run([verb, "show", "no-such-thing"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("verb", VERBS)
def test_new_writes_a_commented_file_that_reads_and_refuses_to_overwrite(verb, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main.run([verb, "new", "mine", "--from", VERBS[verb]]) == 0
    text = (tmp_path / "mine.toml").read_text()
    assert text.startswith("# ")
    assert main.run([verb, "new", "mine"]) == 6
    assert (tmp_path / "mine.toml").read_text() == text
    assert main.run([verb, "new", "mine", "--from", VERBS[verb], "--force"]) == 0
    capsys.readouterr()
    assert main.run([verb, "show", "mine.toml"]) == 0


def test_a_file_says_what_its_packaged_start_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for verb, start in VERBS.items():
        assert main.run([verb, "new", verb, "--from", start]) == 0
    assert load_model("models.toml").groups == load_model("llama-3-8b").groups
    assert load_model("models.toml").weights_bytes == load_model("llama-3-8b").weights_bytes
    assert load_gpu("gpus.toml").bf16_flops == load_gpu("h100").bf16_flops
    assert load_channel("channels.toml").transfer_ns(1 << 30) == load_channel("pcie5-x16").transfer_ns(
        1 << 30
    )
    assert load_step_time("step-times.toml") == load_step_time("h100-llama-3-8b-tp1")
    assert measured_on("step-times.toml") == measured_on("h100-llama-3-8b-tp1")
    own, packaged = load_step_time("roofline:models.toml@gpus.toml:tp2"), "roofline:llama-3-8b@h100:tp2"
    assert own == load_step_time(packaged)


def test_a_scenario_takes_files_of_ones_own_from_where_it_lies(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(CONFIG.read_text())
    monkeypatch.chdir(tmp_path)
    assert main.run(["gpus", "new", "gpu", "--from", "h100"]) == 0
    assert main.run(["channels", "new", "link"]) == 0
    monkeypatch.chdir("/")
    scenario = scenario_from_text(
        "model: ./config.json\n"
        "replica: {step_time: 'roofline:./config.json@gpu.toml:tp2'}\n"
        "tiers: {gpu: {capacity: auto}, cpu: {capacity: 4GiB}}\n"
        "channels: {cpu-to-gpu: {preset: link.toml}}\n"
        "workload: {kind: conversational}\n",
        "",
        tmp_path,
    )
    assert scenario.settings.cache.kv_bytes_per_token == 36_864
    assert scenario.settings.cache.num_layers == 36
    assert scenario.model.model == str(tmp_path / "config.json")
    again = scenario_from_text(json.dumps(scenario.resolved), "", tmp_path.parent)
    assert again.settings == scenario.settings


@pytest.mark.parametrize(
    ("name", "spellings"),
    [
        ("h200-qwen3-32b-tp4", ["roofline:qwen3-32b@h200:tp4", "aiconfigurator:qwen3-32b@h200:vllm:tp4"]),
        ("b300-qwen3-32b-tp5", ["did you mean", "roofline:qwen3-32b@b300:tp5"]),
        ("llama-3.1-70b-l40s", ["roofline:llama-3.1-70b@l40s,", "aiconfigurator:llama-3.1-70b@l40s "]),
        ("something", ["roofline:MODEL@GPU:tpN", "aiconfigurator:MODEL@GPU:vllm:tpN"]),
    ],
)
def test_an_unknown_set_names_the_spellings_that_would_work(name, spellings):
    for ask in (load_step_time, measured_on):
        with pytest.raises(UsageError) as refusal:
            ask(name)
        for spelling in spellings:
            assert spelling in str(refusal.value)
    if name.startswith("h200"):
        assert load_step_time(spellings[0])


def test_the_doctor_says_which_sources_are_usable(capsys):
    main.run(["doctor"])
    out = capsys.readouterr().out
    assert f"{len(model_names())} models" in out
    assert "aiconfigurator:" in out
    assert "cache " in out


DOCTOR = {
    "python": [("sys.version_info", (3, 11), "ok"), ("sys.version_info", (3, 10, 9), "broken")],
    "aiconfigurator:": [("sys.version_info", (3, 14), "missing")],
    "native module": [("kvcache_sim._core.__version__", "0.0", "broken")],
    "extra report": [("importlib.util.find_spec", lambda name: None, "missing")],
    "temporary files": [
        ("shutil.disk_usage", lambda folder: DiskUsage(0, 0, (1 << 30) - 1), "warning"),
        ("shutil.disk_usage", lambda folder: DiskUsage(0, 0, 1 << 30), "ok"),
    ],
    "cache": [("os.access", lambda *asked: False, "warning"), ("os.access", lambda *asked: True, "ok")],
}


@pytest.mark.parametrize("what", DOCTOR)
def test_the_doctor_names_what_is_wrong(tmp_path, monkeypatch, what):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for target, value, verdict in DOCTOR[what]:
        with monkeypatch.context() as patched:
            patched.setattr(target, value)
            (finding,) = (one for one in check_installation() if one.what == what)
        assert finding.verdict == verdict


def test_formats_of_weights_and_kv_are_said_apart():
    plain = "roofline:llama-3.1-70b@h100:tp2"
    assert measured_on(f"{plain},fp8,kv-fp8") == replace(
        measured_on(plain), kv_dtype="fp8", weight_dtype="fp8"
    )
    bf16, fp8 = (load_step_time(f"roofline:llama-3.1-70b@b300:tp2{kv}") for kv in ("", ",kv-fp8"))
    assert fp8.kv_ms_per_thousand * 2 == pytest.approx(bf16.kv_ms_per_thousand)
    assert fp8.base_points == bf16.base_points
    measured = measured_on("aiconfigurator:llama-3.1-70b@h100:vllm:tp2,fp8,kv-fp8")
    assert (measured.kv_dtype, measured.weight_dtype) == ("fp8", "fp8")
    assert measured_on("aiconfigurator:llama-3.1-70b@h100:vllm:tp2").kv_dtype == ""
    for name in ("linear:base=5ms", "iterations.csv", "iterations.csv.gz"):
        assert measured_on(name).tensor_parallel == 1
    for wrong in (":tp1000", ":fp7", ":tp2,kv-fp7", ":", ":tp2:fp8"):
        with pytest.raises(UsageError, match="not a roofline"):
            load_step_time(f"roofline:llama-3.1-70b@h100{wrong}")


@pytest.mark.parametrize(
    "said",
    [
        "replica: {step_time: 'roofline:qwen3-32b@h100:tp2,fp8,kv-fp8'}",
        "model: qwen3-32b\ncache: {kv_dtype: fp8}\nreplica: {max_model_len: auto}",
    ],
)
def test_a_scenario_keeps_the_kv_in_the_format_it_says(said, tmp_path):
    scenario = scenario_from_text(f"{said}\nworkload: {{kind: conversational}}\n", "", tmp_path)
    assert scenario.settings.cache.kv_bytes_per_token == 262_144 // 2
    again = scenario_from_text(json.dumps(scenario.resolved), "", tmp_path)
    assert again.settings == scenario.settings
    with pytest.raises(UsageError, match="did you mean fp"):
        scenario_from_text("cache: {kv_dtype: fp7}\nworkload: {kind: conversational}\n", "", tmp_path)
