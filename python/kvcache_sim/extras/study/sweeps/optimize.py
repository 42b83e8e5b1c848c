"""A search for the best settings under conditions: Optuna proposes, the sweep's cells answer."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.study.sweeps.cell import Cell, CellRecord, Limits, Setting, Study, content_address
from kvcache_sim.extras.study.sweeps.plan import Resolve
from kvcache_sim.extras.study.sweeps.space import Choice, Interval
from kvcache_sim.extras.study.sweeps.stop import StopRequest
from kvcache_sim.extras.study.sweeps.store import CellStore, claim, locked
from kvcache_sim.extras.study.sweeps.supervisor import LocalRunner
from kvcache_sim.extras.study.sweeps.tables import Row, result_rows
from kvcache_sim.metrics.names import metric_value, resolve_metric
from kvcache_sim.metrics.objectives import Objective
from kvcache_sim.metrics.thresholds import Threshold, parse_threshold

#: Trials proposed together, so that the search does not depend on the number of workers.
_BATCH = 4
#: Distance of a failed cell from every condition: farther than any finished cell.
_FAILED = 1e30
#: The journal's entry with the numbers of trials that were proposed again.
_AGAIN = "proposed again"


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of a search: the best value of a figure among the settings that meet all conditions."""

    objective: Objective
    conditions: tuple[Threshold, ...]

    def violations(self, summary: Mapping[str, object]) -> list[float]:
        """Return each condition's distance from holding, relative to its limit; ≤ 0 holds."""
        return [_violation(condition, summary) for condition in self.conditions]


def parse_goal(minimize: str, maximize: str, subject_to: Sequence[str], option: str = "{}") -> Goal:
    """Return the goal of a search; raises UsageError for none, two, and signed conditions.

    ``option`` is how an option is named in a refusal, ``--{}`` on a command line.
    """
    if bool(minimize) == bool(maximize):
        expected = f"{option.format('minimize')} METRIC or {option.format('maximize')} METRIC"
        raise UsageError("one goal is needed", expected=expected)
    where = option.format("minimize" if minimize else "maximize")
    objective = Objective(resolve_metric(minimize or maximize, where), bool(minimize))
    where = option.format("subject-to" if "-" in option else "subject_to")
    conditions = tuple(parse_threshold(text, where) for text in subject_to)
    for condition in conditions:
        if condition.needs_baseline:
            raise UsageError("a condition has no baseline", where=where, got=repr(condition.text))
    return Goal(objective, conditions)


@dataclass(frozen=True, slots=True)
class Trial:
    """One set of settings that was tried."""

    number: int
    settings: Mapping[str, Setting]
    value: float | None
    is_feasible: bool


@dataclass(frozen=True, slots=True)
class Search:
    """Parameters of a search: settings, number of trials, seed, workers and limits."""

    space: Mapping[str, Interval | Choice]
    trials: int
    seed: int
    jobs: int
    limits: Limits


def optimize(
    study: Study, resolve: Resolve, search: Search, goal: Goal, directory: Path, stop: StopRequest
) -> list[Trial]:
    """Try settings and return the trials in order; ``directory`` keeps Optuna's journal and every cell.

    A call with the same directory resumes where it stopped, without simulating a configuration again. Equal
    seeds give equal trials for any number of workers. Raises ``UsageError`` without the ``search`` extra.
    """
    if importlib.util.find_spec("optuna") is None:
        raise UsageError("optimize needs the 'search' extra", hint="pip install 'kvcache-sim[search]'")
    claim(directory)
    with locked(directory):
        store = CellStore(directory)
        store.create()
        proposals = _open_journal(directory, search, goal)
        _propose_again(proposals)
        while (left := search.trials - len(_trials(proposals))) > 0 and stop.level == 0:
            count = min(_BATCH, left)
            asked = [proposals.ask() for _ in range(count)]
            rows = [{n: _suggest(trial, n, d) for n, d in search.space.items()} for trial in asked]
            records = _answers(study, resolve, search, rows, store, stop)
            if records is None:
                break
            for trial, row, record in zip(asked, rows, records, strict=True):
                _report(proposals, trial, row, record, goal)
        return _trials(proposals)


def best(trials: Sequence[Trial], objective: Objective) -> Trial | None:
    """Return the best trial that meets all conditions, the earliest among equals, or None."""
    feasible = [trial for trial in trials if trial.is_feasible and trial.value is not None]
    return min(feasible, key=lambda trial: objective.loss(trial.value or 0.0), default=None)


class _NoLock:
    """Stands in for Optuna's lock of the journal, which a killed process keeps: the directory is locked."""

    def acquire(self) -> bool:
        """Return True."""
        return True

    def release(self) -> None:
        """Do nothing."""


def _drop_torn_line(journal: Path) -> None:
    """Drop the end of a line whose writer was killed; Optuna would append to it."""
    if journal.exists():
        data = journal.read_bytes()
        os.truncate(journal, data.rfind(b"\n") + 1)


def _open_journal(directory: Path, search: Search, goal: Goal) -> Any:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def constraints(trial: Any) -> Sequence[float]:
        values: list[float] = trial.user_attrs.get("violations", [_FAILED] * len(goal.conditions))
        return values

    done = sum(1 for _ in (directory / "cells").glob("*.json"))  # a resumed search continues the draws
    with warnings.catch_warnings():
        # its successor, Trial.set_constraint, came with 5.0 only
        warnings.simplefilter("ignore", FutureWarning)
        sampler = optuna.samplers.TPESampler(
            seed=(search.seed + done) % 2**32,
            n_startup_trials=min(10, max(4, search.trials // 4)),
            constraints_func=constraints if goal.conditions else None,
        )
    direction: Literal["minimize", "maximize"] = (
        "minimize" if goal.objective.smaller_is_better else "maximize"
    )
    conditions = [condition.text for condition in goal.conditions]
    space = {name: repr(dimension) for name, dimension in search.space.items()}
    asked = content_address([space, goal.objective.metric, direction, conditions])
    journal, lock = directory / "journal.log", cast(Any, _NoLock())
    _drop_torn_line(journal)
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(journal), lock)),
        study_name=f"kvsim-{asked}",
        sampler=sampler,
        direction=direction,
        load_if_exists=True,
    )


def _propose_again(proposals: Any) -> None:
    """Propose the settings of unfinished trials first: their search ended or was killed meanwhile."""
    from optuna.trial import TrialState

    unfinished = proposals.get_trials(states=(TrialState.RUNNING,))
    again = [*proposals.user_attrs.get(_AGAIN, ()), *(trial.number for trial in unfinished)]
    proposals.set_user_attr(_AGAIN, again)
    for trial in unfinished:
        proposals.enqueue_trial(trial.params)
        proposals.tell(trial.number, state=TrialState.FAIL)


def _suggest(trial: Any, name: str, dimension: Interval | Choice) -> Setting:
    if isinstance(dimension, Choice):
        index: int = trial.suggest_categorical(name, list(range(len(dimension.values))))
        return dimension.values[index]
    return dimension.value(trial.suggest_float(name, 0.0, 1.0))


Suggested = dict[str, Setting]


def _answers(
    study: Study,
    resolve: Resolve,
    search: Search,
    rows: Sequence[Suggested],
    store: CellStore,
    stop: StopRequest,
) -> list[CellRecord] | None:
    """Return the records of some rows, simulated or kept from before; None when asked to stop meanwhile."""
    cells = _cells(study, resolve, dict(enumerate(rows)))
    kept, _ = store.load({cell.cell_id for cell in cells})
    records = {name: record for name, record in kept.items() if record.status == "ok"}
    missing = {cell.cell_id: cell for cell in cells if cell.cell_id not in records}
    runner = LocalRunner(search.jobs, search.limits)
    for record in runner.run(study, list(missing.values()), stop):
        store.save(record)
        records[record.cell_id] = record
    if any(cell.cell_id not in records for cell in cells):
        return None
    return [records[cell.cell_id] for cell in cells]


def _cells(study: Study, resolve: Resolve, rows: Mapping[int, Mapping[str, Setting]]) -> list[Cell]:
    """Return the cell of each row of settings, by its number."""
    resolved = ((number, row, *resolve(row)) for number, row in rows.items())
    return [
        Cell(number, content_address([study.cell_function, configuration]), row, 0, work)
        for number, row, configuration, work in resolved
    ]


def tried(
    study: Study, resolve: Resolve, trials: Sequence[Trial], directory: Path
) -> tuple[list[Cell], list[Row]]:
    """Return the cells of some trials of a search, and their rows as a sweep's table has them."""
    distinct: dict[str, Trial] = {}
    for trial in trials:
        distinct.setdefault(repr(trial.settings), trial)
    settings = {trial.number: trial.settings for trial in distinct.values()}
    cells = _cells(study, resolve, settings)
    records, _ = CellStore(directory).peek(cell.cell_id for cell in cells)
    return cells, result_rows(cells, records)


def _report(proposals: Any, trial: Any, row: Suggested, record: CellRecord, goal: Goal) -> None:
    from optuna.trial import TrialState

    value = metric_value(record.summary, goal.objective.metric) if record.status == "ok" else None
    trial.set_user_attr("settings", row)
    trial.set_user_attr("violations", goal.violations(record.summary))
    if value is None:
        proposals.tell(trial, state=TrialState.FAIL)
    else:
        proposals.tell(trial, value)


def _trials(proposals: Any) -> list[Trial]:
    """Return the trials with an answer, numbered without those that were proposed again."""
    trials: list[Trial] = []
    for trial in proposals.trials:
        if trial.number in proposals.user_attrs[_AGAIN] or not trial.state.is_finished():
            continue
        violations = trial.user_attrs["violations"]
        feasible = trial.value is not None and all(v <= 0 for v in violations)
        trials.append(Trial(len(trials), trial.user_attrs["settings"], trial.value, feasible))
    return trials


def _violation(condition: Threshold, summary: Mapping[str, object]) -> float:
    value, limit = metric_value(summary, condition.metric), condition.limit()
    if value is None or limit is None:
        return _FAILED
    distance = (value - limit) / (abs(limit) or 1.0)
    distance = distance if condition.comparison in ("<", "<=") else -distance
    if condition.holds(summary):
        return min(distance, 0.0)
    return max(distance, 1e-12)
