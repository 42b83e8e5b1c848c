"""Scenarios inside the package: every one that needs no file of the repository, by name wherever a file may stand."""

import importlib.util
from pathlib import Path

import pytest
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.scenario.load import load_scenario
from support.product.scenarios import preset_names, preset_path

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"


def test_every_scenario_that_needs_no_trace_comes_along():
    own = {path.stem: path.read_text() for path in SCENARIOS.glob("*.yaml")}
    without_trace = {name for name, text in own.items() if "\ntrace:" not in text}
    assert set(preset_names()) == without_trace
    for name in without_trace:
        assert preset_path(name).read_text() == own[name]


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_is_the_scenario(name, capsys):
    assert (
        load_scenario(Path(f"preset:{name}")).resolved == load_scenario(SCENARIOS / f"{name}.yaml").resolved
    )
    assert kvsim(["init", "--preset", name]) == 0
    assert capsys.readouterr().out == (SCENARIOS / f"{name}.yaml").read_text()


@pytest.mark.parametrize(
    "arguments", [["init", "--preset", "quickstrat"], ["simulate", "-c", "preset:quickstrat"]]
)
def test_an_unknown_preset_is_one_line(arguments, capsys):
    assert kvsim(arguments) == 2
    err = capsys.readouterr().err
    assert "no such preset" in err
    assert "did you mean 'quickstart'?" in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("installed", [True, False])
def test_the_next_step_printed_is_one_that_works(installed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = importlib.util.find_spec
    if not installed:
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: None if name == "altair" else found(name)
        )
    settings = ["--set", "workload.requests=20", "-o", "run"]
    assert kvsim(["simulate", "-c", "preset:quickstart", *settings]) == 0
    following = capsys.readouterr().out.strip().splitlines()[-1]
    assert following.startswith("next: kvsim report run" if installed else "next: kvsim explain run")
    _, verb, run, *_ = following.removeprefix("next: ").split()
    assert kvsim([verb, run]) == 0
