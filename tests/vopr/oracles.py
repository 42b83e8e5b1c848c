"""Oracles of one simulated scenario: invariants, the specification, equal runs, its files."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from kvcache_sim.base.errors import KvsimError, UsageError
from kvcache_sim.metrics.columns import REQUEST_COLUMNS, STATUSES
from kvcache_sim.metrics.load_run import load_run
from kvcache_sim.metrics.run import Run
from kvcache_sim.metrics.run_directory import open_run_directory
from kvcache_sim.report.reproduction import reproduce
from kvcache_sim.scenario.execute import Execution, execute
from kvcache_sim.scenario.load import Scenario
from kvcache_sim.simulation import RunOptions, Simulation
from kvcache_sim.workload.trace import NOT_GIVEN, Trace
from support.agreement import ENGINES, assert_same, beyond_spec, by_spec, columns
from support.conserved import check_never_idle, check_the_end
from support.lookahead import LOOKAHEAD, SINGLE_ARRIVALS
from support.product.scenarios import store

from vopr import relations
from vopr.finding import oracle

EVER = (0, 1 << 62)


def judge(scenario: Scenario, trace: Trace, folder: Path, has_plugins: bool) -> str:
    """Raise Finding if a run of a scenario breaks an oracle; return the oracles that judged it.

    Raises UsageError for a scenario that is refused.
    """
    options = RunOptions(check="full", record_window_ns=EVER)
    with oracle("the run", (KvsimError,)):
        made = execute(scenario, trace, options)
    with oracle("rows"):
        check_rows(made)
    with oracle("the end"):
        simulation = Simulation(scenario.settings, trace, RunOptions(check="full"))
        plain = simulation.run()
        assert plain.digest_events == made.run.digest_events, "I11"
        assert columns(plain.requests).items() <= columns(made.run.requests).items(), "I11"
        if scenario.settings.membership.nothing_happens:
            check_the_end(simulation, plain)
    with oracle("the directory"), open_run_directory(folder / "run", force=False) as directory:
        store(execute(scenario, trace, options, None, directory), directory, ["simulate"])
        check_files(made.run, folder / "run")
    with oracle("I11: reproduce", (UsageError,)):
        assert reproduce(folder / "run", plugins=has_plugins).is_same
    for name, other in ((SINGLE_ARRIVALS, "single arrivals"), (LOOKAHEAD, "no lookahead")):
        with oracle(f"I11: {other}"), patch(name, return_value=False):
            assert_same(plain, Simulation(scenario.settings, trace, RunOptions(check="full")).run())
    said = ["invariants", *_by_specification(scenario, trace, plain)]
    said += relations.judge(scenario.settings, trace, plain, has_plugins)
    return ", ".join(said + _of_two_runs(scenario, trace, made.run, has_plugins))


def check_rows(made: Execution) -> None:
    """Check that each request has one row, that its tokens are the trace's, and the summary's figures."""
    rows, trace, counts = made.run.requests, made.trace, made.summary["requests"]
    status = np.asarray(rows["status"])
    assert counts["arrived"] == len(status) == sum(counts[name] for name in STATUSES), "I1"
    assert [int((status == number).sum()) for number in range(len(STATUSES))] == [counts[n] for n in STATUSES]
    if len(status) == len(trace):
        assert np.array_equal(rows["request"], np.arange(len(trace))), "I1: a request has no row, or two"
    done = status == 0
    ttft = (np.asarray(rows["first_token_ns"]) - np.asarray(rows["arrival_ns"]))[done]
    e2e = (np.asarray(rows["finish_ns"]) - np.asarray(rows["arrival_ns"]))[done]
    assert (ttft >= 0).all(), "I6"
    plain = done & (np.asarray(rows["preemptions"]) == 0) & (np.asarray(rows["decode_machine"]) < 0)
    computed = np.asarray(rows["num_tokens_actually_prefilled"]) > 0
    assert (rows["first_decode_ns"][plain & computed] == 0).all(), (
        "a prefill that is counted as a decode step"
    )
    assert (rows["prefill_ns"][plain & ~computed] == 0).all(), "a decode step that is counted as a prefill"
    for name, values in (("ttft_ms", ttft), ("e2e_ms", e2e)):
        if len(values) and name in made.summary.get("latency", {}):
            mean = made.summary["latency"][name]["mean"]
            assert abs(mean - values.mean() / 1e6) <= 1e-6 * max(mean, 1), name


def check_files(run: Run, directory: Path) -> None:
    """Check that the tables of a run directory hold the columns of the run."""
    stored = load_run(directory)
    for name, table in (("requests", run.requests), ("events", run.events), ("series", run.series)):
        kept = columns(getattr(stored, name)())
        for column, values in columns({key: own for key, own in table.items() if key in kept}).items():
            assert kept[column] == values, f"{name}.{column}"
    assert set(stored.requests()) >= set(REQUEST_COLUMNS)


def _by_specification(scenario: Scenario, trace: Trace, run: Run) -> list[str]:
    """Native = spec = spec-plain, with the models of the rules that the specification lacks."""
    if beyond_spec(scenario.settings) or len(trace.retention):
        return []
    for engine in ENGINES:
        with oracle(f"native = {engine}"):
            assert_same(run, by_spec(scenario.settings, trace, engine))
    return ["specification"]


def _of_two_runs(scenario: Scenario, trace: Trace, run: Run, has_plugins: bool) -> list[str]:
    """Invariants and relations that compare two runs, or whose condition few runs meet."""
    settings, said = scenario.settings, []
    plain = settings.tenants is None and settings.models is None and not len(trace.retention)
    machines = settings.machines
    alone = all(len(machine.tiers) == 1 for machine in machines) and settings.pool is None
    if plain and alone and len(machines) == 1 and not has_plugins and _is_plain(scenario, trace):
        with oracle("I12"):
            check_never_idle(run)
        said.append("I12")
    if machines[0].replica.instant and alone and len(machines) == 1 and settings.cache.semantics == "tree":
        with oracle("I10"):
            unbounded = replace(machines[0], tiers=(replace(machines[0].tiers[0], capacity_blocks=None),))
            most = Simulation(replace(settings, machines=(unbounded,)), trace, RunOptions()).run()
            name, served = "cached_prefix_length_used", run.requests["status"] == 0
            assert (run.requests[name][served] <= most.requests[name][served]).all()
        said.append("I10")
    return said


def _is_plain(scenario: Scenario, trace: Trace) -> bool:
    """Return True if no rule holds a request back but capacity: kvsim's own scheduler, one machine, no plan."""
    settings = scenario.settings
    replica: Any = settings.machines[0].replica
    return (
        replica.scheduler == "kvsim"
        and replica.queue_order == "fcfs"
        and replica.duplicate_prefill == "recompute"
        and not replica.instant
        and replica.ranks == 1
        and replica.stages == 1
        and replica.speculation is None
        and settings.membership.nothing_happens
        and bool((trace.abort_after_ns == NOT_GIVEN).all())
    )
