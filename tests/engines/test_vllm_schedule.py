"""vLLM's own scheduler: given rows of the real one, and the books of drawn schedules."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.simulation import Simulation
from kvcache_sim.workload.readers import ReadSettings, read_trace
from kvcache_sim.workload.toolbox.transforms import head, scale
from support.clusters import BLOCK, cluster
from support.examples import examples
from support.product.traces import parse_speed
from support.schedule_book import check_books, plain_table, step_time
from support.schedules import replicas
from support.shared_files import shared
from support.traces import only, random_trace

CLOCK = "linear:base=5ms,token=20us,decode=1us,context=50ns"
FILES = {
    "conversation": ("traces/conversation_trace.jsonl", 512),
    "sharegpt": ("traces/sharegpt_llama31_8b_300_b16.jsonl", 16),
}
SETTINGS = {
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_num_seqs": "max_num_seqs",
    "long_prefill_token_threshold": "long_prefill_token_threshold",
    "watermark": "watermark",
    "scheduler_reserve_full_isl": "reserve_full_isl",
    "policy": "queue_order",
}


def rows(stream: str) -> list[dict]:
    return json.loads(shared(f"oracles/vllm_scheduler_{stream}.json").read_text())


@cache
def streams() -> dict[int, list[list[int]]]:
    given = json.loads(shared("oracles/vllm_scheduler_lcg_streams.json").read_text())
    return {stream["seed"]: stream["requests"] for stream in given}


def overrides(row: dict, trace: Path, block: int) -> list[str]:
    """Return a row's parameters as settings."""
    said = {f"replica.{ours}": row[theirs] for theirs, ours in SETTINGS.items()}
    said |= {
        "trace.path": trace,
        "trace.block_size": block,
        "cache.block_size": 16,
        "cache.semantics": "vllm",
        "cache.enabled": row["prefix_caching"],
        "tiers.gpu.capacity": f"{row['usable_blocks']} blocks",
        "replica.scheduler": "vllm",
        "replica.async_scheduling": "length" if row["async_scheduling"] else "none",
        "replica.step_time": CLOCK,
    }
    return [
        f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in said.items()
    ]


def lcg_trace(row: dict, folder: Path) -> Path:
    path = folder / f"{row['seed']}.jsonl"
    with path.open("w") as file:
        for i, (arrival, prompt, output, document, common) in enumerate(streams()[row["seed"]]):
            ids = [
                document * 1000 + k if k < common else 1_000_000 + 1000 * i + k for k in range(prompt // 16)
            ]
            request = {"timestamp": arrival, "input_length": prompt, "output_length": output, "hash_ids": ids}
            file.write(json.dumps({**request, "priority": (5 * i + 2) % 3}) + "\n")
    return path


@cache
def real_trace(stream: str, requests: int, divisor: int):
    name, block = FILES[stream]
    trace = read_trace(shared(name), settings=ReadSettings(block_size=block))
    trace = scale(head(trace, requests), parse_speed(str(divisor)))
    return replace(trace, priority=(5 * np.arange(len(trace)) + 2) % 3)


def schedule(row: dict, folder: Path, **options) -> dict:
    if row["stream"] == "lcg":
        path = lcg_trace(row, folder)
        scenario = load_scenario(None, overrides(row, path, 16))
        trace = read_trace(path, settings=ReadSettings(block_size=16))
    else:
        name, block = FILES[row["stream"]]
        scenario = load_scenario(None, overrides(row, shared(name), block))
        trace = real_trace(row["stream"], row["n_requests"], row["arrival_divisor"])
    found = Simulation(scenario.settings, trace, RunOptions(schedule=True, **options)).run().schedule
    assert found is not None
    return found


def agree(found: dict, row: dict) -> None:
    for key in [key for key in found if key in row]:
        given = row[key]
        here = found[key][: len(given)] if key.startswith("first_") else found[key]
        assert here == given, key
    named = {"steps", "steps_sha256", "requests_sha256", "final_free_queue_sha256"}
    assert named <= found.keys() & row.keys()


@pytest.mark.parametrize("stream", ["lcg", *FILES])
def test_every_given_row_is_met(stream, tmp_path):
    for row in rows(stream):
        agree(schedule(row, tmp_path), row)


def test_rows_are_met_with_every_invariant_checked(tmp_path):
    for row in rows("lcg")[:12]:
        agree(schedule(row, tmp_path, check="full"), row)


caches = st.builds(
    CacheSettings,
    block_size_tokens=st.just(BLOCK),
    semantics=st.just("vllm"),
    enabled=st.sampled_from([True, True, True, False]),
    cache_output=st.booleans(),
    lookup_ns=st.sampled_from([0, 2_000_000]),
)


@examples(60)
@given(
    replica=replicas,
    cache_settings=caches,
    blocks=st.sampled_from([70, 110, 400]),
    machines=st.sampled_from([1, 1, 2]),
    seed=st.integers(1, 9),
)
def test_the_books_of_a_drawn_schedule_balance(replica, cache_settings, blocks, machines, seed):
    """``tests/engine_oracles`` compares drawn schedules with the real scheduler; this holds without its
    wheel."""
    # what comes to the scheduler later than it arrives is in test_scheduler_relations
    replica = replace(replica, client_offset_ns=0)
    settings = cluster((blocks,), machines)
    each = tuple(replace(machine, replica=replica, step_time=plain_table()) for machine in settings.machines)
    settings = replace(settings, cache=replace(cache_settings, lookup_ns=0), machines=each)
    trace = random_trace(seed, requests=50, sessions=7)
    simulation = Simulation(settings, trace, RunOptions(schedule=True, check="full"))
    check_books(simulation.run(), simulation.replicas, step_time(replica), replica.async_scheduling)


@pytest.mark.parametrize("arrival", [0, 1])
def test_equally_urgent_requests_that_preempt_each_other_for_ever_end_in_a_line(tmp_path, capsys, arrival):
    """Of two equals that do not fit together the one that joined first goes, which then joins last."""
    rows = (
        {"timestamp": at, "input_length": 600, "output_length": 20, "hash_ids": ids}
        for at, ids in ((0, [1, 2]), (arrival, [3, 4]))
    )
    (tmp_path / "two.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    said = """
        scheduler=vllm queue_order=priority reserve_full_isl=false long_prefill_token_threshold=64
    """.split()
    said = (*(f"replica.{word}" for word in said), "tiers.gpu.capacity=45 blocks", "cache.block_size=16")
    words = [word for setting in (*said, "cache.enabled=false") for word in ("--set", setting)]
    code = kvsim(["simulate", str(tmp_path / "two.jsonl"), *words, "-q", "-o", str(tmp_path / "run")])
    line = "replica.scheduler: requests preempt each other without end, as vLLM's would; "
    assert (code, capsys.readouterr().err.startswith(line)) == ((0, False) if arrival else (2, True))
    assert (tmp_path / "run").exists() == bool(arrival)


def test_the_command_prints_a_row(tmp_path, capsys):
    row = rows("lcg")[0]
    path = lcg_trace(row, tmp_path)
    said = [word for setting in overrides(row, path, 16) for word in ("--set", setting)]
    command = ["simulate", *said, "--schedule-digests", "--format", "json", "-q", "-o", str(tmp_path / "run")]
    assert kvsim(command) == 0
    agree(json.loads(capsys.readouterr().out)["schedule"], row)


def test_a_schedule_is_an_engines():
    settings, trace = cluster((110,), 1), random_trace(1)
    with pytest.raises(UsageError, match=r"replica\.scheduler=vllm"):
        Simulation(settings, trace, RunOptions(schedule=True))
    vllm = replace(settings.machines[0], replica=ReplicaSettings(512, 8, scheduler="vllm"))
    with pytest.raises(UsageError, match=r"cache\.semantics vllm"):
        Simulation(replace(settings, machines=(vllm,)), trace, RunOptions())


#: Figures of a machine's schedule that its requests alone give.
ALONE = ("steps", "scheduled_tokens", "preemptions", "hit_tokens_first", "end_ns", "steps_sha256")


def test_each_of_several_machines_has_the_schedule_of_its_requests_alone():
    """Round robin gives machine k every third request: alone they are scheduled the same."""
    vllm = ReplicaSettings(512, 8, scheduler="vllm")
    three = cluster((70,), 3)
    three = replace(three, cache=replace(three.cache, semantics="vllm"))
    three = replace(three, machines=tuple(replace(one, replica=vllm) for one in three.machines))
    trace = random_trace(4, requests=60)
    trace = replace(trace, session=np.full(60, -1, np.int32), arrival_ns=trace.arrival_ns // 20)
    options = RunOptions(schedule=True)
    reported = Simulation(three, trace, options).run().schedule["by_machine"]
    assert [each["machine"] for each in reported] == [0, 1, 2]
    assert sum(each["preemptions"] for each in reported) > 0
    for k, each in enumerate(reported):
        alone = replace(three, machines=three.machines[k : k + 1])
        own = Simulation(alone, only(trace, [*range(k, 60, 3)]), options).run().schedule
        assert {name: each[name] for name in ALONE} == {name: own[name] for name in ALONE}


def test_the_pool_comes_with_the_scheduler_and_its_defaults_pass_typed_out(tmp_path):
    said = ("replica.scheduler=vllm", "replica.watermark=0.0", "replica.reserve_full_isl=true")
    scenario = load_scenario(None, [*said, "replica.long_prefill_token_threshold=0", "cache.enabled=false"])
    assert scenario.settings.cache.semantics == "vllm"
    assert load_scenario(None, ["replica.scheduler=kvsim", *said[1:]]).settings.cache.semantics == "tree"
