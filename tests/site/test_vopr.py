"""The simulation tester itself: a fixed seed finds nothing, a planted fault is found and shrunk."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kvcache_sim import make_trace
from kvcache_sim.base.errors import InvariantError
from kvcache_sim.simulation import simulation
from support.tiered_scenario import load
from vopr import properties, relations, scenarios
from vopr.cases import KINDS, Case, case_of, outcome
from vopr.finding import Finding, oracle
from vopr.search import explain

#: Cases of the fixed seed, and kinds that the suite does not run otherwise.
SEED, CASES = 38, 70
IN_PROCESS = [kind for kind in KINDS if kind != "properties"]


@pytest.mark.parametrize("part", range(5))
def test_the_fixed_seed_finds_nothing(part):
    ended = Counter()
    for number in range(part, CASES, 5):
        case = case_of(SEED, number, IN_PROCESS)
        how, text = outcome(case)
        assert not text, f"python tests/vopr --case {case}"
        ended[how] += 1
    assert ended["refused"] < ended.total() / 2
    assert any("specification" in how for how in ended)


def test_equal_seeds_are_equal_cases():
    assert [case_of(7, n) for n in range(20)] == [case_of(7, n) for n in range(20)]
    assert {case_of(7, n).kind for n in range(300)} == set(KINDS)
    assert scenarios.draw(11) == scenarios.draw(11)


def test_a_fault_is_found_and_shrunk(monkeypatch, capsys, tmp_path):
    """Planted: the last request of a run has one prefilled token too many."""
    sound = simulation.Simulation.run

    def planted(self, *more):
        run = sound(self, *more)
        rows = run.requests["num_tokens_actually_prefilled"].copy()
        rows[-1:] += len(rows) > 3
        return replace(run, requests={**run.requests, "num_tokens_actually_prefilled": rows})

    monkeypatch.setattr(simulation.Simulation, "run", planted)
    monkeypatch.setattr("vopr.search.KEPT", tmp_path)
    seed = next(s for s in range(100) if scenarios.draw(s).settings.get("workload.requests", 0) > 20)
    assert explain(Case("scenarios", seed), 6) == 1
    assert f"--case scenarios:{seed}" in capsys.readouterr().out
    short = json.loads((tmp_path / f"scenarios:{seed}-short" / "settings.json").read_text())
    assert short.get("workload.requests", 4) < 20
    assert len(short) < len(scenarios.draw(seed).settings)


@pytest.mark.parametrize(
    "relation", [relations.later, relations.not_yet, relations.patience, relations.doubled]
)
def test_each_relation_bites(relation):
    """It concerns an engine's run, and fails for a run of which one time is 1 ns off."""
    ids = [[n % 3, 3 + n] for n in range(8)]
    columns = {"timestamp": [900 * n for n in range(8)], "hash_ids": ids, "input_length": [900] * 8}
    trace = make_trace({**columns, "output_length": [3] * 8})
    settings = load(text="replica: {scheduler: vllm}\ncache: {semantics: vllm}").settings
    run = simulation.simulate(settings, trace)
    assert relation(settings, trace, run)
    first_token_ns = run.requests["first_token_ns"] + (np.arange(8) == 1)
    with pytest.raises(AssertionError):
        relation(settings, trace, replace(run, requests={**run.requests, "first_token_ns": first_token_ns}))


def test_a_broken_invariant_is_a_finding_and_a_refusal_is_none():
    with pytest.raises(Finding, match="I3") as raised, oracle("the run", (InvariantError,)):
        raise InvariantError("I3: blocks are held after the end")
    assert raised.value.key == ("the run", "InvariantError: ", "I3:")


def test_properties_are_those_of_the_suite():
    tests = properties.tests()
    assert "spec/test_everything_together.py::test_everything_together" in tests
    assert len(tests) > 100
    for test in tests:
        file, _, name = test.partition("::")
        assert f"def {name}" in (Path(__file__).parents[1] / file).read_text()
