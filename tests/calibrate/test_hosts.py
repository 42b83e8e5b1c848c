"""Hosts by engine: worked by hand, chosen by the release, and judged on servers whose model no fit had."""

import subprocess
import sys

import kvcache_sim as kv
import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.hosts import load_host
from support.flat_steps import FLAT, moments_ms, row, run, write_rows
from support.shared_files import ROOT, shared

ROOFLINE = "roofline:qwen3-32b@h200:tp2"
ONE = {"timestamp": [0], "input_length": [900], "output_length": [9]}


def served(step_time=ROOFLINE, **replica):
    given = {"release": "sglang@0.5.10", "scheduler": "sglang", "step_time": step_time, **replica}
    semantics = "sglang" if given["scheduler"] == "kvsim" else given["scheduler"]
    scenario = {"model": "qwen3-32b", "cache": {"semantics": semantics, "block_size": 16}, "replica": given}
    return kv.simulate(ONE, scenario)


def test_a_chunk_of_any_length_waits_for_its_launch_and_every_step_takes_its_extra_time(tmp_path):
    """Steps of 10 ms and 1 ms + 32 × 62.5 µs more; 32 layers of 0.75 ms make 24: prompts of 64 and 1,024 take 24."""
    (tmp_path / "flat.toml").write_text(FLAT)
    path = write_rows(tmp_path, [row(0, 1024, 3, 0), row(200, 64, 3, 100)])
    extra = ("replica.step_extra=1ms", "replica.step_extra_per_layer=62500ns")
    settings = (f"replica.step_time={tmp_path / 'flat.toml'}", *extra)
    assert moments_ms(run(path, *settings)) == ([13, 213], [39, 239])
    launched = (*settings, "replica.launch_per_layer=750us", "replica.max_num_batched_tokens=2048")
    assert moments_ms(run(path, *launched)) == ([24, 213], [50, 239])
    assert moments_ms(run(path, *launched, "replica.eager_chunks=true")) == ([24, 224], [50, 250])


def test_the_release_chooses_the_host_of_sums_of_kernels_and_the_scenario_overrules():
    named, alone = served(), served(host="none")
    host = load_host("sglang")
    assert "with host sglang" in named.summary["step_times"]["source"]
    assert "host" not in alone.summary["step_times"]["source"]
    extra_ms = host.step_extra_ns / 1e6
    tpots = [one.summary["latency"]["tpot"]["avg"] for one in (named, alone)]
    assert tpots[0] - tpots[1] == pytest.approx(extra_ms, abs=1e-3)
    launch_ms = 64 * host.launch_per_layer_ns / 1e6
    assert named.summary["latency"]["ttft"]["avg"] == pytest.approx(launch_ms + 40, abs=1e-3)
    zeros = dict.fromkeys(("client_offset", "launch_per_layer", "step_extra"), "0ns") | {
        "eager_chunks": False
    }
    assert served(**zeros, host="none").summary["digest"] == alone.summary["digest"]
    b200 = served("roofline:qwen3-32b@b200:tp2")
    assert "with host sglang-b200" in b200.summary["step_times"]["source"]
    vllm = {"scheduler": "vllm", "release": "vllm@0.13.0"}
    for other in ({"release": "vllm@0.7.3"}, {"scheduler": "kvsim"}):
        assert "host" not in served(**vllm | other).summary["step_times"]["source"]
    eight = "roofline:qwen3-32b@h200:tp8"
    launched, bare = served(eight, **vllm), served(eight, **vllm, host="none")
    assert launched.summary["step_times"]["source"].endswith("with host vllm")
    # 64 layers of 0.6 ms, longer than the kernels of 900 tokens; 8 ms and 900 × 0.6 µs; decode steps as before.
    assert launched.summary["latency"]["ttft"]["avg"] == pytest.approx(38.4 + 8.54, abs=1e-3)
    assert bare.summary["latency"]["ttft"]["avg"] < 38
    assert launched.summary["latency"]["tpot"] == bare.summary["latency"]["tpot"]


def test_steps_that_contain_their_host_are_as_before(tmp_path):
    """Fitted to iterations of an engine: the release adds nothing, and a named host only its client's offset."""
    own = "h100-llama-3.1-8b-tp1"
    assert served(own).summary["digest"] == served(own, host="none").summary["digest"]
    offset = served(own, host="sglang").summary["latency"], served(own, host="none").summary["latency"]
    assert offset[0]["ttft"]["avg"] - offset[1]["ttft"]["avg"] == pytest.approx(40)
    assert offset[0]["tpot"] == offset[1]["tpot"]
    with pytest.raises(UsageError, match="no effect"):
        served(own, host="h100-launch-dense")


def test_the_table_of_servers_with_one_client_is_that_of_the_command():
    """Whole models left out: TPOT within 12 %, TTFT within 25 %; all 56 rows stand there."""
    shared("calibration/sglang_one_client.csv")
    command = [sys.executable, str(ROOT / "benches/sglang_one_client.py")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == (ROOT / "docs/data/sglang-one-client.toml").read_text()


def test_hosts_fitted_to_the_other_models_meet_the_goals():
    shared("calibration/sglang_one_client.csv")
    sys.path.append(str(ROOT / "benches"))
    import sglang_one_client as bench

    rows = bench.read_rows()
    assert len(rows) == 56
    judged = [one for one in rows if one.is_judged]
    assert {one.gpu for one in judged} == {"b200", "h100", "h200", "a100", "gb300"}
    without = bench.left_out(rows)
    errors = bench.median_errors([(without[one], one.measured) for one in judged])
    assert errors.tpot <= 12
    assert errors.ttft <= 25
    # What is packaged is the fit to all, and a run takes what the fit's sum says.
    fitted, b200 = bench.fitted(judged), load_host("sglang-b200")
    packaged = b200.step_extra_ns, b200.step_extra_per_layer_ns, b200.launch_per_layer_ns
    assert [round(1e6 * one) for one in fitted] == pytest.approx(packaged, rel=0.01)
    for one in judged:
        assert one.shipped == pytest.approx(fitted.times(one), rel=0.02), one
