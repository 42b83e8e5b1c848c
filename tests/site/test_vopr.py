"""The simulation tester itself: a fixed seed finds nothing, a planted fault is found and shrunk."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from kvcache_sim import make_trace
from kvcache_sim.base.errors import InvariantError
from kvcache_sim.simulation import simulation
from support.draft import TOKEN_BYTES
from support.tiered_scenario import load
from vopr import properties, relations, scenarios
from vopr.cases import KINDS, Case, case_of, outcome
from vopr.finding import Finding, oracle
from vopr.search import explain
from vopr.shrink import without_parts

#: Cases of the fixed seed, and kinds that the suite does not run otherwise.
SEED, CASES = 38, 70
IN_PROCESS = [kind for kind in KINDS if kind != "properties"]


@pytest.mark.parametrize("part", range(2))
def test_the_fixed_seed_finds_nothing(part):
    ended = Counter()
    for number in range(part, CASES, 2):
        case = case_of(SEED, number, IN_PROCESS)
        how, text = outcome(case)
        assert not text, f"python tests/vopr --case {case}"
        ended[how] += 1
    assert ended["refused"] < ended.total() / 3
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


def test_parts_are_left_out_from_halves_to_single_items():
    assert list(without_parts([1, 2, 3, 4])) == [[3, 4], [1, 2], [2, 3, 4], [1, 3, 4], [1, 2, 4], [1, 2, 3]]


def test_a_plug_in_raises_at_its_turn():
    text = "def by_use(b, now):\n    return b.last_use\n"
    own = {}
    exec(scenarios.raising(text, 1), own)

    class Block:
        last_use = 3

    assert own["by_use"](Block, 0) == 3
    with pytest.raises(ValueError, match="raises"):
        own["by_use"](Block, 0)


def test_most_scenarios_have_about_the_space_of_their_longest_request():
    """At most four times its tokens in three of four draws but those of models with unequal layers."""
    tight = 0
    for seed in range(40):
        own = scenarios.draw(seed)
        number, unit = re.fullmatch(r"(\d+) ?(\w+)", own.settings["tiers.gpu.capacity"]).groups()
        block = own.settings.get("cache.block_size", 512)
        space = (
            int(number) * {"blocks": block, "MiB": 2**20 // TOKEN_BYTES, "GiB": 2**30 // TOKEN_BYTES}[unit]
        )
        tight += space <= 4 * scenarios.longest_tokens(own) + 2 * block
    assert 22 <= tight <= 38


def test_a_test_of_a_range_of_seeds_gets_a_new_one():
    params = [{"seed": seed, "of": of} for seed in (1, 2) for of in "ab"]
    items = [SimpleNamespace(callspec=SimpleNamespace(params=own)) for own in params]
    properties._Collected(7).pytest_collection_modifyitems(items)
    assert sorted(item.callspec.params["of"] for item in items) == ["a", "b"]
    assert all(item.callspec.params["seed"] > 2 for item in items)
    assert "spec/test_spec_views.py::test_simplified_accounting_counts_as_in_the_core" in properties.tests()


def test_properties_are_those_of_the_suite():
    tests = properties.tests()
    assert "spec/test_everything_together.py::test_everything_together" in tests
    assert len(tests) > 100
    for test in tests:
        file, _, name = test.partition("::")
        assert f"def {name}" in (Path(__file__).parents[1] / file).read_text()
