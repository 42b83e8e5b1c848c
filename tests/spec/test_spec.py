"""The specification against the core: random scenarios over all that it covers, its refusals, its readers'
promises."""

import ast
import json
import os
import random
import re
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
from kvcache_sim.simulation.spec_keys import COVERAGE, uncovered
from kvcache_sim.workload.trace import NOT_GIVEN, Trace
from support.agreement import ENGINES, assert_same, beyond_spec, by_spec
from support.product.spec import Only, coverage
from support.scenarios import drawn
from support.setting_effects import CHANGES
from support.setting_traces import filled
from support.tiered_scenario import BASE, load

SPEC = Path(__file__).resolve().parents[2] / "python" / "kvcache_sim" / "spec"
SCENARIOS = sorted((Path(__file__).resolve().parents[2] / "scenarios").glob("*.yaml"))
#: Packaged scenarios of an engine's own cache, and those with rules that no seed asks for.
ENGINES_OWN = ("vllm-rtx4090",)
BEYOND_SEEDS = ("cachedattention", "mooncake-pool", "nvme", "ragcache")
#: New scenarios are tried on request, by number.
FIRST = random.randrange(10**9) if "KVSIM_EXAMPLES" in os.environ else 0


def checked(seed: int) -> Iterator[tuple[Scenario, Trace, Run]]:
    """Yield the drawn scenario with its requests and its run by the core, unless a build refuses it."""
    try:
        scenario = load_scenario(None, drawn(seed, only_spec=True).arguments()[1::2])
        trace = read_requests(scenario)
        yield scenario, trace, simulate(scenario.settings, trace)
    except UsageError:
        return


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + int(os.environ.get("KVSIM_EXAMPLES", "80"))))
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


def refused(key: str) -> list[tuple[str, ...]]:
    """Return settings of ``setting_effects.toml`` that give a key, or one below it, some value."""
    named = key.replace("NAME", "cpu-to-gpu")
    rows = [
        (*row.given, row.assignment)
        for row in CHANGES
        if re.match(rf"{re.escape(named)}[.=]", row.assignment)
    ]
    return [*rows, (f"{key}=arc",)] if key.startswith("tiers.") and key.endswith(".policy") else rows


WORKLOAD = """
    workload.kind=diverse workload.requests=4 workload.arrivals.rate_per_s=1 tiers.gpu.capacity=8GiB
""".split()


@pytest.mark.parametrize("key", [key for key, row in COVERAGE.items() if isinstance(row, Only)])
def test_what_is_not_covered_ends_in_one_line(
    key: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for given in refused(key):
        settings = filled(given, folder)
        scenario = load(*settings)
        paths = [".".join(map(str, path)) for path, _ in uncovered(scenario.resolved)]
        if any(re.match(rf"{key.replace('NAME', '[^.]+')}\b", path) for path in paths):
            break
    else:
        pytest.fail("no row has a value that is not covered")
    with pytest.raises(UsageError) as refusal:
        refuse_beyond_spec(scenario)
    (tmp_path / "s.yaml").write_text(BASE)
    sets = ["-c", str(tmp_path / "s.yaml"), *(word for setting in settings for word in ("--set", setting))]
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
    assert re.match(
        rf"{option.partition('=')[0]}: not covered by spec/; .{{20,}}; --engine native has it\n", said
    )
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
