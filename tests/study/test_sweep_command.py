"""``kvsim sweep`` with real simulations: plan, run, resume, refuse; and on a Ray cluster."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.cells import parse_shard
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.extras.study.sweeps.cell import Limits
from kvcache_sim.extras.study.sweeps.ray_runner import RayRunner
from kvcache_sim.extras.study.sweeps.stop import StopRequest
from support.examples import examples
from support.product.sweeps import LocalRunner, run_sweep
from support.sweep_driver import Silent, plan_of


def row_of(n: int) -> dict:
    """Return a request of two or three blocks of 512 tokens, of which only the last is new."""
    length = 1024 + 300 * (n % 4)
    blocks = [n % 3, 10 + n % 7, *([100 + n] if length // 512 > 2 else [])]
    return {"timestamp": 50 * n, "input_length": length, "output_length": 5, "hash_ids": blocks}


TRACE = "".join(json.dumps(row_of(n)) + "\n" for n in range(60))

SWEEP = """name: sizes
scenario: {trace: {path: trace.jsonl}, tiers: {gpu: {capacity: 12 blocks}, cpu: {capacity: 64 blocks}}}
grid:
  tiers.gpu.capacity: [12 blocks, 40 blocks]
  write.policy: [back, through]
limits: {time: 60s}
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.jsonl").write_text(TRACE)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    return tmp_path


def sweep(*arguments):
    return kvsim(["sweep", "-c", "sweep.yaml", "-q", *arguments])


def test_a_sweep_runs_once_and_is_there_afterwards(study, capsys):
    assert sweep("-o", "out", "--dry-run") == 0
    assert "4 distinct, 0 finished, 4 to run" in capsys.readouterr().out
    assert not (study / "out").exists()
    assert sweep("-o", "out", "-j", "2", "--pareto", "ttft.p99:min,hit_rate:max") == 0
    out, err = capsys.readouterr()
    assert out.startswith("Pareto front (latency.ttft.p99 and cache.token_hit_rate): ")
    assert "4 cells ended (0 before)" in err
    first = (study / "out" / "results.csv").read_bytes()
    assert sweep("-o", "out") == 0
    assert "4 cells ended (4 before)" in capsys.readouterr().err
    assert (study / "out" / "results.csv").read_bytes() == first
    header, *rows = first.decode().splitlines()
    assert {"set.tiers.gpu.capacity", "cache.token_hit_rate", "digest.events"} <= set(header.split(","))
    assert not [name for name in header.split(",") if name.startswith("wall.")]
    assert len(rows) == 4


def test_a_changed_trace_is_refused(study, capsys):
    assert sweep("-o", "out") == 0
    (study / "trace.jsonl").write_text(TRACE + TRACE.splitlines()[-1] + "\n")
    assert sweep("-o", "out") == 3
    assert "changed since this sweep was planned" in capsys.readouterr().err


def test_a_lost_ray_node_costs_nothing_but_time(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="pip install 'kvcache-sim[ray]'")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray
    from ray.cluster_utils import Cluster

    plan = plan_of(6, "slow", str(tmp_path))
    stop = StopRequest()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    doomed = cluster.add_node(num_cpus=1)

    class KillNode(Silent):
        ended = 0

        def cell_ended(self, cell, record):
            self.ended += 1
            if self.ended == 1:
                cluster.remove_node(doomed, allow_graceful=False)

    try:
        outcome = run_sweep(plan, tmp_path / "ray", RayRunner(cluster.address, 1, Limits()), stop, KillNode())
        assert outcome.exit_code == 0, outcome
        assert len(list((tmp_path).glob("ran-*"))) == 6
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert run_sweep(plan, tmp_path / "local", LocalRunner(2, Limits()), stop, Silent()).exit_code == 0
    stop.close()
    for name in ("results.csv", "results.parquet"):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()


@examples(100)
@given(
    st.from_regex(r"[01٣x]{0,3}/?[0-4]{0,3}", fullmatch=True)
    | st.sampled_from(("7/100000", "7/100001", "1/2/3", "-1/2"))
)
def test_a_shard_is_one_of_as_many_as_there_are(text):
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    part = (int(found[1]), int(found[2])) if found else (0, 0)
    if text and not 1 <= part[0] <= part[1] <= 100_000:
        with pytest.raises(UsageError, match="not a shard"):
            parse_shard(text)
    else:
        assert parse_shard(text) == (part if text else (1, 1))
