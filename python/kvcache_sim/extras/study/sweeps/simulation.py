"""A sweep of simulations: rows of settings to scenarios, cells to summaries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from kvcache_sim import __version__
from kvcache_sim.base.errors import TraceError, UsageError
from kvcache_sim.extras.study.sweeps.cell import Cell, Setting, Study, canonical_json
from kvcache_sim.extras.study.sweeps.plan import WHOLE, Plan, Resolve, Resolved, Shard, file_sha256, lay_out
from kvcache_sim.extras.study.sweeps.study import SweepFile
from kvcache_sim.model.model_file import names_model_file
from kvcache_sim.model.step_times import files_named_in
from kvcache_sim.scenario.cost import costs_by_batch, with_cost
from kvcache_sim.scenario.load import Scenario, varied_from_text
from kvcache_sim.scenario.requests import keeps_unknown, read_requests
from kvcache_sim.scenario.resolved import config_hash, to_yaml
from kvcache_sim.workload.trace import Trace

#: The cell function of every sweep of simulations.
CELL_FUNCTION = "kvcache_sim.extras.study.sweeps.simulation:simulate_cell"

#: Seeds of each row where requests are generated.
SEEDS_OF_GENERATED = 5
#: Work of a block reference and of a further machine relative to a request, from their measured costs.
_REQUESTS_A_REFERENCE = 0.02
_MORE_A_MACHINE = 0.05


def plan_sweep(file: SweepFile, shard: Shard = WHOLE) -> Plan:
    """Return the plan of a sweep file: every row checked as a scenario before anything runs.

    Raises ``UsageError`` naming the setting that no scenario accepts or that none uses, and what reading the
    requests raises.
    Cost: about 4 ms a row, and reading each distinct trace once.
    """
    unused: list[dict[str, UsageError]] = []
    study, resolve = prepare(file, unused)
    repeats = file.repeats or default_repeats(file, study)
    plan = lay_out(file.name, study, file.space, repeats, file.seed, resolve)
    refuse_unused(unused)
    return Plan(plan.name, study, plan.cells, shard)


def default_repeats(file: SweepFile, study: Study) -> int:
    """Return the seeds of each row: five if requests are generated and a setting is no size, else one."""
    if not file.space.compares_kinds():
        return 1
    row = next(iter(file.space.rows(file.seed)), {})
    is_generated = "seed" not in row and load_cell(study.base, study.directory, row).model.trace is None
    return SEEDS_OF_GENERATED if is_generated else 1


def refuse_unused(unused: Sequence[Mapping[str, UsageError]]) -> None:
    """Raise the UsageError of a setting that has no effect in any row."""
    for name, refusal in unused[0].items():
        if all(name in row for row in unused):
            raise refusal


def prepare(file: SweepFile, unused: list[dict[str, UsageError]] | None = None) -> tuple[Study, Resolve]:
    """Return the study of a file, and the function that resolves a row of its settings.

    The study's ``files`` fill up as rows are resolved that name them; ``unused`` gets the settings that
    nothing uses in each row.
    """
    base, directory = _base(file)
    files: dict[str, str] = {}
    reader = _Requests()

    def resolve(settings: Mapping[str, Setting]) -> Resolved:
        scenario = load_cell(base, directory, settings)
        if unused is not None:
            unused.append({error.what: error for error in scenario.idle})
        for path in _inputs(scenario):
            if path not in files:
                files[path] = file_sha256(Path(path))
        trace = scenario.model.trace
        digest = files[trace.path] if trace is not None else ""
        prices = scenario.resolved.get("cost")  # they change the summary, not the run
        configuration = [__version__, config_hash(scenario.resolved, digest), prices]
        return Resolved(configuration, _work(scenario, reader.of(scenario)))

    return Study(CELL_FUNCTION, base, directory, files), resolve


def load_cell(base: str, directory: str, settings: Mapping[str, Setting]) -> Scenario:
    """Return the scenario of a row of settings laid over the base."""
    overrides = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
    return varied_from_text(base, "scenario", Path(directory), overrides)


def simulate_cell(study: Study, cell: Cell) -> dict[str, Any]:
    """Simulate a cell and return its summary with ``batches``; the requests are kept for the next cell.

    Raises ``TraceError`` when the trace is no longer the planned one, and what the simulation raises.
    """
    from kvcache_sim.metrics.batches import BATCHES, batch_figures
    from kvcache_sim.metrics.parts import arrays_of
    from kvcache_sim.metrics.request_totals import ChosenRows
    from kvcache_sim.scenario.measure import measured_requests, measured_summary
    from kvcache_sim.scenario.step_time_source import summarize_step_times
    from kvcache_sim.simulation import RunOptions, simulate

    scenario, trace = requests_of_cell(study, cell)
    measured = measured_requests(scenario, trace)
    run = simulate(scenario.settings, trace, options=RunOptions(marks_ns=measured.marks_ns))
    _, summary, _ = measured_summary(scenario, run, measured)
    rows = arrays_of(run.requests)
    inside = measured.is_measured(rows)
    assert inside is not None
    summary = {**with_cost(scenario, summary), **summarize_step_times(scenario)}
    batches = batch_figures(ChosenRows(rows, inside))
    return {**summary, BATCHES: {**batches, **costs_by_batch(summary, batches)}}


def requests_of_cell(study: Study, cell: Cell) -> tuple[Scenario, Trace]:
    """Return a cell's scenario and its requests, those of the last cells kept for the next ones.

    Raises ``TraceError`` when the trace is no longer the planned one.
    """
    scenario = load_cell(study.base, study.directory, cell.settings)
    path = scenario.model.trace.path if scenario.model.trace is not None else ""
    if path in study.moved:
        moved = {**cell.settings, "trace.path": study.moved[path]}
        scenario = load_cell(study.base, study.directory, moved)
    trace = _kept_requests(_RequestsKey(scenario))
    planned = study.files.get(path)
    if planned is not None and trace.sha256 != planned:
        raise TraceError("changed since this sweep was planned", where=trace.source)
    return scenario, trace


def _base(file: SweepFile) -> tuple[str, str]:
    if isinstance(file.scenario, str):
        from kvcache_sim.scenario.load import load_varied

        path = file.path.parent / file.scenario
        load_varied(path)  # a missing or wrong file is named before the rows are
        return path.read_text(encoding="utf-8"), str(path.parent.absolute())
    return to_yaml(file.scenario), str(file.path.parent.absolute())


def _inputs(scenario: Scenario) -> list[str]:
    model = scenario.model
    paths = [model.trace.path] if model.trace is not None else []
    paths += [model.trace.tokenizer] if model.trace is not None and model.trace.tokenizer else []
    paths += files_named_in(model.replica.step_time)
    paths += [model.replica.links] if model.replica.links and model.replica.links.endswith(".csv") else []
    paths += [model.model] if model.model is not None and names_model_file(model.model) else []
    paths = [str(Path(path, "config.json")) if Path(path).is_dir() else path for path in paths]
    plug_in = model.cache.policy.rpartition(":")[0].rpartition(":")[2]
    return paths + ([plug_in] if plug_in.endswith(".py") else [])


class _RequestsKey:
    """A scenario as the key of its requests: equal keys have the same requests."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        model, resolved = scenario.model, scenario.resolved
        draws = model.trace is None or model.trace.sessions is not None or "enter" in model.workload
        seed = model.seed if draws else 0
        shown = [resolved.get("trace"), resolved.get("workload"), model.cache.block_size, seed]
        shown += [keeps_unknown(scenario), resolved["router"].get("affinity")]
        tiers = [[tier.capacity_blocks for tier in machine.tiers] for machine in scenario.settings.machines]
        self.text = canonical_json([shown, tiers])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _RequestsKey) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


@lru_cache(maxsize=2)
def _kept_requests(key: _RequestsKey) -> Trace:
    return read_requests(key.scenario)


class _Counts(NamedTuple):
    """Requests, and the references to blocks of all of them."""

    requests: int
    references: int


class _Requests:
    """Counts of requests and references, each distinct trace or workload read once."""

    def __init__(self) -> None:
        self._counts: dict[str, _Counts] = {}

    def of(self, scenario: Scenario) -> _Counts:
        """Return the counts of a scenario's requests."""
        model, resolved = scenario.model, scenario.resolved
        key = canonical_json([resolved.get("trace"), resolved.get("workload")])
        if key not in self._counts:
            trace = read_requests(scenario)
            self._counts[key] = _Counts(
                len(trace),
                len(trace.block_ids) * trace.block_size // model.cache.block_size,
            )
        return self._counts[key]


def _work(scenario: Scenario, counts: _Counts) -> float:
    requests, references = counts
    machines = len(scenario.settings.machines)
    return (requests + _REQUESTS_A_REFERENCE * references) * (1 + _MORE_A_MACHINE * (machines - 1))
