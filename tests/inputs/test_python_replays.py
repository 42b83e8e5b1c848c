"""Replays, curves and sweeps from Python are what the commands print."""

import json

import kvcache_sim as kv
import pytest
from kvcache_sim.cli import main
from kvcache_sim.workload.toolbox.write import mooncake_lines


@pytest.fixture
def trace():
    return kv.generate("conversational", seed=2, requests=60)


def json_of(capsys, argv) -> dict:
    capsys.readouterr()
    assert main.run(argv) == 0
    return json.loads(capsys.readouterr().out)


def test_curve_and_cachesim_are_what_the_commands_print(trace, tmp_path, capsys):
    file = tmp_path / "t.jsonl"
    file.write_text("".join(mooncake_lines(trace)))
    reported = json_of(
        capsys, ["curve", str(file), "--policy", "lfu", "--capacity", "64", "--format", "json"]
    )
    assert kv.curve(file, policy=["lfu"], capacity=[64]).document == reported
    assert kv.curve(trace, policy=["lfu"]).to_arrow().num_rows == 3 * len(kv.curve(trace).points)
    argv = ["cachesim", str(file), "--policy", "vllm", "--capacity", "4GiB", "--model", "llama-3-8b"]
    reported = json_of(capsys, [*argv, "--format", "json"])
    replay = kv.cachesim(file, "vllm", capacity="4GiB", model="llama-3-8b")
    assert dict(replay) == reported
    assert kv.cachesim(trace, capacity=64).requests.num_rows == len(trace)
    with pytest.raises(kv.UsageError, match=r"windw: unknown setting 'windw'; did you mean 'window'\?"):
        kv.cachesim(trace, capacity=64, windw=3)


def test_replays_and_curves_of_any_settings_are_what_the_commands_print(trace, tmp_path, capsys):
    """Settings of Python and the options that say the same."""
    file = tmp_path / "t.jsonl"
    file.write_text("".join(mooncake_lines(trace)))
    unified = {"policy": "sglang-unified:lru", "capacity": "9"}
    for verb, settings, line in (
        (
            "cachesim",
            {"order": "root", "last_partial": "keep", "capacity": 9},
            "--order root --last-partial keep",
        ),
        ("cachesim", {"policy": "vllm", "capacity": "9", "window": 3}, ""),
        ("cachesim", {"capacity": 9, "flat": True}, "--flat"),
        ("cachesim", {"capacity": 9, "outputs": "all"}, "--outputs all"),
        ("cachesim", {"capacity": 9, "block_size": 256}, "--block-size 256"),
        ("cachesim", unified, ""),
        (
            "cachesim",
            {**unified, "host_capacity": "5", "storage": "unbounded", "write_policy": "write_back"},
            "",
        ),
        ("cachesim", {"policy": "lmcache:lru", "cpu_chunks": 9, "disk_chunks": 7, "chunk_tokens": 512}, ""),
        ("cachesim", {"policy": "vllm", "capacity": 9, "cpu_chunks": 2, "max_num_batched_tokens": 1024}, ""),
        ("curve", {"order": "root", "outputs": "all"}, "--order root --outputs all"),
        ("curve", {"block_size": 256}, "--block-size 256"),
        ("curve", {"policy": ["lfu"], "by_session": True}, "--policy lfu --by-session"),
        ("curve", {"capacity": [7, "8 blocks"], "given": [2]}, "--capacity 7 --capacity 8 --given 2"),
    ):
        words = line.split() or [
            word for key, value in settings.items() for word in (f"--{key.replace('_', '-')}", str(value))
        ]
        for key in ("capacity", "policy", "window"):
            if isinstance(settings.get(key), (int, str)) and f"--{key}" not in words:
                words += [f"--{key}", str(settings[key])]
        reported = json_of(capsys, [verb, str(file), *words, "--format", "json"])
        found = getattr(kv, verb)(file, **settings)
        assert (dict(found) if verb == "cachesim" else found.document) == reported, (verb, settings)
    for wrong, refusal in (
        ({"seed": 3}, "seed: a seed has no effect without a sample"),
        ({"polcy": 1}, "did you mean 'policy'"),
        ({"zzz": 1}, "settings: block_size, "),
    ):
        with pytest.raises(kv.UsageError, match=refusal):
            kv.curve(trace, **wrong)


@pytest.mark.parametrize(
    ("more", "size_bytes"),
    [({"kv_bytes_per_token": 3}, 9 * 512 * 3), ({"model": "llama-3-8b"}, 9 * 512 * 131072), ({}, None)],
)
def test_a_replays_size_in_bytes_is_known_with_the_bytes_of_a_token(trace, more, size_bytes):
    assert kv.cachesim(trace, capacity=9, **more).get("capacity_bytes") == size_bytes


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_sweep_is_what_its_cells_are(trace, jobs, tmp_path):
    sizes = ["48 blocks", "96 blocks"]
    cells = kv.sweep(trace, grid={"tiers.gpu": sizes}, jobs=jobs)
    for size, row in zip(sizes, cells.rows, strict=True):
        run = kv.simulate(trace, tiers={"gpu": size})
        assert row["set.tiers.gpu.capacity"] == size
        assert row["digest.results"] == run.digests["results"]
        assert row["latency.ttft.p99"] == run.summary["latency"]["ttft"]["p99"]
    assert cells.best("ttft.p99") == min(cells.rows, key=lambda row: row["latency.ttft.p99"])
    assert cells.best("hit_rate", largest=True) == max(cells.rows, key=lambda r: r["cache.token_hit_rate"])
    assert cells.to_arrow().num_rows == len(cells) == 2


def test_a_sweep_of_sets_of_settings(trace):
    rows = [{"tiers": {"gpu": "48 blocks"}}, {"tiers": {"gpu": "48 blocks", "cpu": "4GiB"}}]
    cells = kv.sweep(trace, rows=rows)
    assert [row["set.tiers.cpu.capacity"] for row in cells.rows] == [None, "4GiB"]
    with pytest.raises(kv.UsageError, match="unknown key"):
        kv.sweep(trace, grid={"tiers.cpus.capacity": ["1GiB"]})
    with pytest.raises(kv.UsageError, match="nothing to try"):
        kv.sweep(trace)


def test_the_curve_of_a_model_of_windows_is_the_verbs(trace, tmp_path, capsys):
    file = tmp_path / "t.jsonl"
    file.write_text("".join(mooncake_lines(trace)))
    reported = json_of(
        capsys, ["curve", str(file), "--model", "gpt-oss-20b", "--capacity", "2GiB", "--format", "json"]
    )
    curve = kv.curve(file, model="gpt-oss-20b", capacity=["2GiB"])
    assert isinstance(curve, kv.Curve)
    assert curve.document == reported
    assert curve.points[0]["groups"]["hit_rate"] == reported["points"][0]["groups"]["hit_rate"]
    assert curve.to_arrow().column("kind").to_pylist() == ["groups", "full_attention"]
    assert str(curve).startswith("gpt-oss-20b: ")
    assert "<table" in curve._repr_html_()
    with pytest.raises(kv.UsageError, match="no knee"):
        _ = curve.knee
    with pytest.raises(kv.UsageError, match="policy: a model of windows or states has no such setting"):
        kv.curve(file, model="gpt-oss-20b", policy=["lfu"])
