"""The sheet of `kvsim models capacity`: the sums that the page works, compared with startup logs."""

import json

import pytest
from kvcache_sim.cli.main import run as kvsim
from support.docs_data import read_table

GIB = 2**30


def sheet(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert kvsim(["models", "capacity", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_page_works_four_models_at_four_releases(capsys):
    found = []
    for release in ("0.11.0", "0.19.1", "0.26.0", "0.33.0"):
        for model in ("llama-3.1-8b", "qwen3-32b", "qwen3-30b-a3b", "gpt-oss-120b"):
            words = (model, "--gpu", "h100", "--max-model-len", "16384", "--release", f"vllm@{release}")
            shown = sheet(capsys, *words)
            terms = {term["name"]: abs(term["bytes"]) / GIB for term in shown["terms"]}
            assert sum(term["bytes"] for term in shown["terms"]) == shown["kv_bytes"]
            of = next(term["rule"] for term in shown["terms"] if term["name"] == "activations").split()[1]
            kv, low, high = (shown[f"{part}_bytes"] / GIB for part in ("kv", "low", "high"))
            found.append(
                [
                    release,
                    model,
                    f"{terms['to take']:.2f}",
                    f"{terms['weights']:.2f}",
                    f"{terms['activations']:.2f} {of}",
                    f"{terms['non-torch']:.2f}",
                    f"{terms['graphs']:.2f}",
                    f"**{kv:.2f}**" if kv > 0 else f"**{kv:.2f}**, does not start",
                    f"{low:.1f} to {high:.1f}",
                    "" if shown["tokens"] is None else f"{shown['tokens']:,}",
                ]
            )
    assert found == read_table("kv-capacity-sums").rows


#: Lines of startup logs: of dariustanrd/tokenkaki (vLLM 0.19.1, A100 of 40 GB), as vLLM 0.25 prints our
#: measured run of qwen3-30b-a3b, and of sgl-project/sglang's clean-startup-log (B200).
LOGS = {
    "a100": """\
(EngineCore pid=1) INFO [core.py:105] Initializing a V1 LLM engine (v0.19.1) with config: model='Qwen/Qwen3-8B', \
max_seq_len=40960, tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1, kv_cache_dtype=auto
(EngineCore pid=1) INFO [gpu_model_runner.py:4820] Model loading took 15.27 GiB memory and 4.543456 seconds
(EngineCore pid=1) INFO [gpu_model_runner.py:5955] Estimated CUDA graph memory: 2.35 GiB total
(EngineCore pid=1) INFO [gpu_worker.py:436] Available KV cache memory: 19.36 GiB
(EngineCore pid=1) INFO [kv_cache_utils.py:1319] GPU KV cache size: 140,960 tokens
(EngineCore pid=1) INFO [kv_cache_utils.py:1324] Maximum concurrency for 40,960 tokens per request: 3.44x
""",
    "h100": """\
(APIServer pid=1) INFO [utils.py:299] █▄█▀ █ version 0.25.1
(APIServer pid=1) INFO [utils.py:273] non-default args: {'model_tag': 'Qwen/Qwen3-30B-A3B', 'max_num_seqs': 256, \
'gpu_memory_utilization': 0.9}
(EngineCore pid=1) INFO [gpu_model_runner.py:6737] Estimated CUDA graph memory: 0.49 GiB total
(EngineCore pid=1) INFO [gpu_worker.py:560] Available KV cache memory: 12.5 GiB
(EngineCore pid=1) INFO [gpu_worker.py:857] Free memory on device (78.66/79.18 GiB) on startup. Desired GPU memory \
utilization is (0.9, 71.26 GiB). Actual usage is 56.88 GiB for weight, 1.15 GiB for peak activation, 0.24 GiB for \
non-torch memory, and 0.5 GiB for CUDAGraph memory.
""",
    "b200": """\
[02:35:54] server_args=ServerArgs(model_path='Qwen/Qwen3-8B', tp_size=1, ...)
[02:36:04] Load weight begin. avail mem=177.57 GB
[02:36:06] Load weight end. elapsed=1.97 s, type=Qwen3ForCausalLM, avail mem=162.30 GB, mem usage=15.28 GB.
[02:36:06] KV Cache is allocated. #tokens: 992896, K size: 68.18 GB, V size: 68.18 GB
[02:36:28] max_total_num_tokens=992896, chunked_prefill_size=16384, context_len=40960
""",
}


def test_a_servers_log_is_read_and_compared(tmp_path, capsys):
    for name, text in LOGS.items():
        (tmp_path / name).write_text(text)
    shown = sheet(capsys, "qwen3-8b", "--gpu", "a100-40gb", "--from-log", str(tmp_path / "a100"))
    assert shown["release"] == "vllm@0.19.1"
    assert shown["read_from_log"]["max_model_len"] == 40_960
    assert shown["tokens"] == pytest.approx(140_960, rel=0.01)
    assert shown["terms"][-1]["bytes"] == 0  # printed, not subtracted
    shown = sheet(capsys, "qwen3-30b-a3b", "--gpu", "h100", "--from-log", str(tmp_path / "h100"))
    assert (shown["max_num_seqs"], shown["release"]) == (256, "vllm@0.25.1")
    logged = {term["name"]: term["logged_gib"] for term in shown["terms"]}
    assert logged == {
        "to take": 71.26,
        "weights": 56.88,
        "activations": 1.15,
        "non-torch": 0.24,
        "graphs": 0.49,
    }
    assert shown["terms"][-1]["bytes"] == -int(0.49 * GIB)
    assert shown["kv_bytes"] / GIB == pytest.approx(12.5, abs=0.1)
    words = (
        "qwen3-8b",
        "--gpu",
        "b200",
        "--release",
        "sglang@0.5.10.post1",
        "--from-log",
        str(tmp_path / "b200"),
    )
    shown = sheet(capsys, *words)
    assert shown["logged"]["KV"] == 136.36
    assert shown["kv_bytes"] / GIB == pytest.approx(136.36, abs=0.1)
    assert kvsim(["models", "capacity", *words]) == 0
    printed = capsys.readouterr().out
    assert "max_total_num_tokens=993,344  (log 992,896: +0.0 %)" in printed
    assert "log 177.57" in printed


def test_what_is_no_log_or_no_setting_of_the_engine_is_refused(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("nothing of an engine")
    for words, reason in (
        (["--from-log", str(tmp_path / "notes.txt")], "no startup log of vLLM or SGLang"),
        (["--from-log", str(tmp_path / "none")], "log not readable"),
        (["--mem-fraction-static", "0.8"], "not a setting of vllm"),
        (["--release", "sglang@0.5.9", "--graphs-gib", "1"], "not a setting of sglang"),
    ):
        assert kvsim(["models", "capacity", "qwen3-8b", "--gpu", "h100", *words]) == 2
        refusal = capsys.readouterr().err
        assert reason in refusal
        assert refusal.count("\n") == 1
