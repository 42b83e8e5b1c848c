"""The specification against the core: random scenarios over all that it covers, its refusals, its readers'
promises."""

import ast
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.metrics.run import Run
from kvcache_sim.scenario.key_list import key_lines
from kvcache_sim.scenario.load import Scenario, load_scenario
from kvcache_sim.scenario.requests import read_requests, refuse_beyond_spec
from kvcache_sim.simulation import RunOptions, simulate, spec_simulation
from kvcache_sim.simulation.spec_keys import COVERAGE, Only, coverage
from kvcache_sim.workload.trace import NOT_GIVEN, Trace
from spec_scenarios import drawn
from support.agreement import ENGINES, assert_same, beyond_spec, by_spec

SPEC = Path(__file__).resolve().parents[2] / "python" / "kvcache_sim" / "spec"
SCENARIOS = sorted((Path(__file__).resolve().parents[2] / "scenarios").glob("*.yaml"))
#: Packaged scenarios of an engine's own cache, and those with rules that no seed asks for.
ENGINES_OWN = ("vllm-rtx4090",)
BEYOND_SEEDS = ("cachedattention", "mooncake-pool", "nvme", "pd-disagg", "ragcache")
#: New scenarios are tried on request, by number.
FIRST = random.randrange(10**9) if "KVSIM_EXAMPLES" in os.environ else 0


def overrides(settings: dict[str, object]) -> list[str]:
    return [
        f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items()
    ]


def checked(seed: int) -> Iterator[tuple[Scenario, Trace, Run]]:
    """Yield the drawn scenario with its requests and its run by the core, unless a build refuses it."""
    try:
        scenario = load_scenario(None, overrides(drawn(seed)))
        trace = read_requests(scenario)
        yield scenario, trace, simulate(scenario.settings, trace)
    except UsageError:
        return


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + int(os.environ.get("KVSIM_EXAMPLES", "60"))))
def test_the_core_does_what_the_specification_says(seed: int, engine: str):
    for scenario, trace, native in checked(seed):
        assert beyond_spec(scenario.settings) == []
        assert_same(native, by_spec(scenario.settings, trace, engine))


def test_most_drawn_scenarios_are_taken():
    taken = sum(1 for seed in range(40) for _ in checked(seed))
    assert taken >= 24


def small(path: Path) -> Scenario:
    """Return a packaged scenario with fewer requests of its workload."""
    scenario = load_scenario(path, [])
    if "requests" in scenario.model.workload:
        requests = min(int(scenario.model.workload["requests"]), 150)
        return load_scenario(path, [f"workload.requests={requests}"])
    return scenario


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_packaged_scenario_is_refused_in_one_line_or_has_equal_digests(path: Path):
    scenario = small(path)
    if path.stem in (*ENGINES_OWN, *BEYOND_SEEDS):
        with pytest.raises(UsageError, match="is not covered by spec/"):
            refuse_beyond_spec(scenario)
    else:
        refuse_beyond_spec(scenario)
    if path.stem not in ENGINES_OWN:
        trace = read_requests(scenario)
        native = simulate(scenario.settings, trace)
        for engine in ENGINES:
            assert_same(native, by_spec(scenario.settings, trace, engine))


# -- the table of keys


def test_every_key_of_a_scenario_has_a_row():
    keys = [line.split()[0] for line in key_lines()]
    for key in keys:
        coverage(key)
    unknown = [row for row in COVERAGE if not any(key == row or key.startswith(f"{row}.") for key in keys)]
    assert unknown == []


#: Names of settings that several rows need.
SHARED = {
    "VLLM": ["cache.semantics=vllm", "replica.scheduler=vllm"],
    "SGLANG": ["cache.semantics=sglang", "replica.scheduler=sglang"],
    "POOLS": ["pools.prefill=1", "pools.decode=1"],
    "HICACHE": [
        "tiers.cpu={capacity: 2GiB, semantics: hicache}",
        "tiers.disk.capacity=4GiB",
        "prefetch.policy=queued",
    ],
    "TIERS": ["tiers.cpu.capacity=2GiB", "tiers.disk.capacity=2GiB"],
    "CPU": ["tiers.cpu.capacity=2GiB"],
    "TWO": ["cluster.machines=2"],
}
#: A value of each refused key, and what else it needs; a section stands for its keys.
REFUSED: dict[str, list[str]] = {
    "cache.semantics": ["cache.semantics=sglang"],
    "cache.layer_groups": ["model=gpt-oss-120b", "cache.layer_groups=by-kind"],
    "cache.retention_interval": [
        "model=gpt-oss-120b",
        "cache.semantics=vllm",
        "cache.retention_interval=1024",
    ],
    "cache.policy": ["cache.policy=arc"],
    "cache.touch": ["cache.touch=admission"],
    "cache.eviction_batch_blocks": ["cache.eviction_batch_blocks=4"],
    "cache.scheduler_aware_window": ["cache.scheduler_aware_window=4"],
    "cache.admission": ["cache.admission=prompt"],
    "cache.discard_on_finish": ["cache.discard_on_finish=true"],
    "tiers.gpu.policy": ["tiers.gpu.policy=arc"],
    "tiers.cpu.policy": ["CPU", "tiers.cpu.policy=arc"],
    "tiers.disk.policy": ["TIERS", "tiers.disk.policy=arc"],
    "tiers.cpu.semantics": ["CPU", "tiers.cpu.semantics=lmcache"],
    "replica.scheduler": ["VLLM"],
    "replica.watermark": ["VLLM", "replica.watermark=0.1"],
    "replica.reserve_full_isl": ["VLLM", "replica.reserve_full_isl=false"],
    "replica.long_prefill_token_threshold": ["VLLM", "replica.long_prefill_token_threshold=64"],
    "replica.schedule_policy": ["SGLANG", "replica.schedule_policy=lpm"],
    "replica.max_prefill_tokens": ["SGLANG", "replica.max_prefill_tokens=512"],
    "replica.enable_mixed_chunk": ["SGLANG", "replica.enable_mixed_chunk=true"],
    "replica.schedule_conservativeness": ["SGLANG", "replica.schedule_conservativeness=2"],
    "replica.queue_order": ["replica.queue_order=longest-prefix"],
    "replica.duplicate_prefill": ["replica.duplicate_prefill=wait"],
    "replica.async_scheduling": ["replica.async_scheduling=length"],
    "replica.dp": ["TWO", "replica.dp=2"],
    "replica.pp": ["VLLM", "replica.pp=2"],
    "replica.speculation": ["replica.speculation={tokens: 2, mean_length: 1.5}"],
    "replica.copy_submit": ["CPU", "replica.copy_submit=1us"],
    "replica.copy_gpu_share": ["CPU", "replica.copy_gpu_share=0.1"],
    "cluster.pool": ["TWO", "CPU", "cluster.pool={capacity: 2GiB}"],
    "router.policy": ["TWO", "router.policy=power-of-two"],
    "router.temperature": ["TWO", "router.policy=dynamo-kv", "router.temperature=1"],
    "router.cache_threshold": ["TWO", "router.policy=cache-aware", "router.cache_threshold=0.5"],
    "router.balance_abs_threshold": ["TWO", "router.policy=cache-aware", "router.balance_abs_threshold=5"],
    "router.balance_rel_threshold": ["TWO", "router.policy=cache-aware", "router.balance_rel_threshold=2"],
    "router.scorers": ["TWO", "router.policy=weighted", "router.scorers={queue: 1}"],
    "router.kv_aware_threshold": ["TWO", "router.policy=kvaware", "router.kv_aware_threshold=9"],
    "router.load_weight": ["TWO", "router.policy=loadaware", "router.load_weight=2"],
    "router.max_load_skew": ["TWO", "router.policy=consistent-hashing", "router.max_load_skew=3"],
    "router.view.interval": ["TWO", "router.policy=least-loaded", "router.view.interval=1s"],
    "router.index.kind": ["TWO", "router.policy=cache-aware", "router.index.kind=gateway-tree"],
    "router.index.eviction_interval": [
        "TWO",
        "router.policy=cache-aware",
        "router.index.kind=gateway-tree",
        "router.index.eviction_interval=5s",
    ],
    "router.index_blocks": ["TWO", "router.policy=longest-prefix", "router.index_blocks=99"],
    "router.index_delay": [
        "TWO",
        "router.policy=longest-prefix",
        "router.index_blocks=99",
        "router.index_delay=1s",
    ],
    "handover.router": [
        "cluster.machines=3",
        "pools={prefill: 1, decode: 2}",
        "handover.router=power-of-two",
    ],
    "channel_choice": [
        "CPU",
        "channels.a={bandwidth: 3GB/s, edges: [cpu->gpu]}",
        "channels.b={bandwidth: 3GB/s, edges: [cpu->gpu]}",
        "channel_choice=emptiest",
    ],
    "channels.NAME.piece_submit": [
        "CPU",
        "channels.a={bandwidth: 3GB/s, edges: [cpu->gpu], piece_submit: 1us}",
    ],
    "fetch.policy": ["CPU", "fetch.policy=PLUGIN:Half"],
    "fetch.remote_disk": ["TWO", "TIERS", "fetch.lookup=cluster", "fetch.remote_disk=staged"],
    "fetch.exclusive": ["CPU", "fetch.exclusive=[cpu->gpu]"],
    "fetch.read_buffer_layers": ["CPU", "fetch.read_buffer_layers=2"],
    "fetch.timeout_per_ki_token": [
        "HICACHE",
        "fetch.policy=timeout",
        "fetch.timeout=1s",
        "fetch.timeout_per_ki_token=1ms",
    ],
    "write.policy": ["CPU", "write.policy=selective"],
    "prefetch.policy": ["TIERS", "prefetch.policy=queued"],
    "prefetch.threshold": ["HICACHE", "fetch.policy=wait", "prefetch.threshold=512"],
    "fleet.plan": ["TWO", "fleet.plan=[{at: 5s, do: join}]"],
    "fleet.faults": ["TWO", "fleet={faults: [{do: lose, mtbf: 1h}], faults_until: 5s}"],
    "fleet.scaling": ["TWO", "fleet.scaling={policy: queue, most: 3}"],
    "retention": ["retention={}"],
    "tenants": ["tenants={field: tenant}"],
    "handover.decide": ["POOLS", "handover.decide=llm-d"],
    "handover.threshold_tokens": ["POOLS", "handover={decide: llm-d, threshold_tokens: 9}"],
    "handover.threshold_share": ["POOLS", "handover={decide: dynamo-isl-bounding, threshold_share: 0.5}"],
    "handover.min_prompt_tokens": ["POOLS", "handover={decide: llm-d, min_prompt_tokens: 9}"],
    "handover.prefill_busy": ["POOLS", "handover={decide: dynamo-prefill-load, prefill_busy: 1.0}"],
    **{
        f"tiers.{tier}.{form.partition('=')[0]}": [
            "tiers.cpu.capacity=9GiB",
            "tiers.disk.capacity=9GiB",
            f"tiers.{tier}.{form}",
        ]
        for tier in ("cpu", "disk")
        for form in ("kv_ratio=0.5", "encode=1GB/s", "decode=1GB/s")
    },
    **{
        f"handover.{form.partition('=')[0]}": ["pools.prefill=1", "pools.decode=1", f"handover.{form}"]
        for form in ("kv_ratio=0.5", "encode=1GB/s", "decode=1GB/s")
    },
    "models": ["TWO", "models={field: model, of: {a: {machines: 1}, b: {machines: 1}}}"],
    "adapters": ["adapters={field: adapter}"],
}
PLUGIN = """
class Keep:
    def kept_blocks(self, finished): return finished.blocks
class Half:
    def reuse(self, plan): return plan.ready
class Up:
    occasions = ("queued",)
    def blocks(self, candidate): return 0
class W:
    writes_back, at_commit, delays_step = True, False, False
    def __init__(self, upper, settings): pass
    def committed(self, store, lease, blocks, now_ns): return None
    def used(self, store, lease, now_ns): return None
    def arrived(self, store, move, now_ns): return None
class Chan:
    def choose(self, sending, links): return next(iter(links))
class First:
    def key(self, waiting): return (waiting.arrival_ns,)
"""
WORKLOAD = [
    "workload.kind=diverse",
    "workload.requests=4",
    "workload.arrivals.rate_per_s=1",
    "tiers.gpu.capacity=8GiB",
]


def test_every_refused_key_is_tried():
    assert set(REFUSED) == {key for key, row in COVERAGE.items() if isinstance(row, Only)}


@pytest.mark.parametrize("key", REFUSED)
def test_what_is_not_covered_ends_in_one_line(key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plugin = tmp_path / "own.py"
    plugin.write_text(PLUGIN)
    needed = [one for name in REFUSED[key] for one in SHARED.get(name, [name])]
    settings = [*WORKLOAD, *(setting.replace("PLUGIN", str(plugin)) for setting in needed)]
    scenario = load_scenario(None, settings)
    with pytest.raises(UsageError) as refusal:
        refuse_beyond_spec(scenario)
    sets = [word for setting in settings for word in ("--set", setting)]
    assert kvsim(["simulate", *sets, "--engine", "spec", "-q", "-o", str(tmp_path / "run")]) == 2
    [said] = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("plug-in: ")]
    assert said == str(refusal.value)
    assert "is not covered by spec/; got " in said
    assert "--engine native has it" in said


def test_a_trace_with_cancellations_or_hints_is_refused():
    scenario = load_scenario(None, WORKLOAD)
    trace = read_requests(scenario)
    gone = replace(trace, abort_after_ns=trace.arrival_ns * 0 + 5)
    with pytest.raises(UsageError, match="not covered"):
        simulate(scenario.settings, gone, options=RunOptions(engine="spec"))
    hinted = replace(trace, retention=np.zeros(len(trace), np.int8))
    with pytest.raises(UsageError, match="a hint of what becomes of a request's blocks"):
        simulate(scenario.settings, hinted, options=RunOptions(engine="spec"))
    patient = replace(trace, abort_after_ns=trace.arrival_ns * 0 + NOT_GIVEN)
    simulate(scenario.settings, patient, options=RunOptions(engine="spec"))


def test_the_summary_names_the_engine(tmp_path: Path):
    sets = [word for setting in WORKLOAD for word in ("--set", setting)]
    for engine in ("native", *ENGINES):
        assert kvsim(["simulate", *sets, "--engine", engine, "-q", "-o", str(tmp_path / engine)]) == 0
    summaries = [json.loads((tmp_path / e / "summary.json").read_text()) for e in ("native", *ENGINES)]
    assert [summary["engine"]["name"] for summary in summaries] == ["native", *ENGINES]
    for summary in summaries:
        del summary["wall"], summary["engine"]
        assert summary == summaries[0]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_full_check_looks_at_the_store_after_every_event(engine: str, monkeypatch: pytest.MonkeyPatch):
    looked = []
    monkeypatch.setattr(spec_simulation, "check_store", lambda store, machine, now_ns: looked.append(now_ns))
    scenario = load_scenario(None, [*WORKLOAD, "tiers.cpu.capacity=2GiB"])
    trace = read_requests(scenario)
    plain = simulate(scenario.settings, trace, options=RunOptions(engine=engine))
    assert looked == []
    checked = simulate(scenario.settings, trace, options=RunOptions(check="full", engine=engine))
    assert len(looked) == checked.engine.events - 1
    assert_same(plain, checked)
    monkeypatch.undo()
    assert_same(plain, simulate(scenario.settings, trace, options=RunOptions(check="full", engine=engine)))


def test_misses_are_counted_by_cause_as_by_the_core(tmp_path: Path):
    sets = [word for setting in (*WORKLOAD, "tiers.gpu.capacity=2GiB") for word in ("--set", setting)]
    for engine in ("native", *ENGINES):
        line = ["simulate", *sets, "--causes", "--engine", engine, "-q", "-o", str(tmp_path / engine)]
        assert kvsim(line) == 0
    summaries = [json.loads((tmp_path / e / "summary.json").read_text()) for e in ("native", *ENGINES)]
    assert [summary["misses"] for summary in summaries] == [summaries[0]["misses"]] * len(summaries)


@pytest.mark.parametrize("option", ["--record=all", "--prefixes", "--schedule-digests"])
def test_an_option_that_only_the_core_has_ends_in_one_line(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    sets = [word for setting in WORKLOAD for word in ("--set", setting)]
    assert kvsim(["simulate", *sets, "--engine", "spec", option, "-q", "-o", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{option.partition('=')[0]}: not covered by the specification; got ")
    assert said.count("\n") == 1


# -- what a reader is promised


def test_a_cpu_hit_is_read_in_at_most_twelve_files():
    command = [sys.executable, str(SPEC.parents[2] / "benches" / "request_path.py"), "--spec"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert int(said.split(" in ")[1].split()[0]) <= 12


def test_no_file_and_no_function_of_it_is_long():
    for path in SPEC.rglob("*.py"):
        text = path.read_text()
        assert len(text.splitlines()) <= 400, path.name
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 70, f"{path.name}: {node.name}"
