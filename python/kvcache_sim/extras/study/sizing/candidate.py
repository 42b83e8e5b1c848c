"""Candidates of a search for capacity: laid out as cells of a study, and the search of each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.study.sizing.further import Further
from kvcache_sim.extras.study.sizing.question import RATE, SESSIONS, Load, Question
from kvcache_sim.extras.study.sizing.search import Outcome, Probe, highest_attaining, sessions_of, speed_of
from kvcache_sim.extras.study.sweeps.cell import Cell, Setting, Study
from kvcache_sim.extras.study.sweeps.plan import WHOLE, Plan, Resolved, Shard, lay_out
from kvcache_sim.extras.study.sweeps.simulation import load_cell, prepare, refuse_unused, requests_of_cell
from kvcache_sim.extras.study.sweeps.space import Space
from kvcache_sim.extras.study.sweeps.study import SweepFile, load_mapping
from kvcache_sim.scenario.load import Scenario
from kvcache_sim.scenario.objectives import objectives_of
from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.workload.sessions import predecessors, trees_of
from kvcache_sim.workload.trace import NO_REQUEST, OPEN_LOOP, Trace

#: The cell function of every search for capacity.
CELL_FUNCTION = "kvcache_sim.extras.study.sizing.candidate:search_cell"
#: The setting that a search for sessions tries.
CONCURRENCY = "workload.concurrency"
#: Speeds that confirm an answer: 3 % below must attain, 5 % above must not.
BELOW, ABOVE = Fraction(97, 100), Fraction(105, 100)
#: Figures of the run at the answer, kept in the candidate's row.
_KEPT = (
    "requests",
    "tokens",
    "cache",
    "latency",
    "throughput",
    "slo",
    "goodput",
    "cost",
    "machines",
    "step_times",
)
#: Fewest measured requests for a reliable share of 99 %.
_FEW = 200


def search_cell(study: Study, cell: Cell) -> dict[str, Any]:
    """Return the capacity of a cell's scenario, and the figures of the run at it."""
    scenario, trace = requests_of_cell(study, cell)
    question = Question.from_parameters(study.parameters)
    probe = SessionProbe(study, cell, question.attain) if question.sessions else None
    return search_candidate(scenario, trace, question, probe or Probe(scenario, trace, question.attain))


class SessionProbe(Probe):
    """A cell, run with several numbers of sessions at a time."""

    def __init__(self, study: Study, cell: Cell, attain: float) -> None:
        super().__init__(*requests_of_cell(study, cell), attain)
        self._study, self._cell = study, cell

    def loaded(self, load: Fraction) -> tuple[Scenario, Trace]:
        """Return the cell's scenario and its requests with so many sessions at a time."""
        settings = {**self._cell.settings, CONCURRENCY: int(load)}
        return requests_of_cell(self._study, replace(self._cell, settings=settings))


@dataclass(frozen=True, slots=True)
class _Searched:
    """The course of a search: outcomes by load, the requests' own rate, runs, and requests that wait."""

    tried: Mapping[Fraction, Outcome]
    own_rate_per_s: float | None
    runs: int
    waiting: int
    load: Load


def search_candidate(scenario: Scenario, trace: Trace, question: Question, probe: Probe) -> dict[str, Any]:
    """Return the highest load at which a scenario attains, the runs that confirm it, and its figures.

    ``capacity.verdict`` is ``found``, ``not monotone``, ``every rate`` (the highest tried attains too) or
    ``no rate``, for sessions ``every`` and ``no number of sessions``. Raises UsageError for requests whose
    rate cannot be scaled, and what a run raises.
    """
    if objectives_of(scenario.model) is None:
        hint = "--slo ttft=2s,tpot=50ms, or slo in the scenario"
        raise UsageError("no limits to attain", where="slo", hint=hint)
    tried: dict[Fraction, Outcome] = {}
    load, own_rate, value_of = (SESSIONS if question.sessions else RATE), None, sessions_of

    def at(value: Fraction, whole: bool = False) -> Outcome:
        if value not in tried or (whole and tried[value].summary is None):
            tried[value] = probe.at(value, whole)
        return tried[value]

    def answer(verdict: str, below: Outcome | None, above: Outcome | None, chosen: Outcome) -> dict[str, Any]:
        searched = _Searched(tried, own_rate, probe.runs, waits(trace), load)
        return _answer(verdict, below, above, searched, chosen)

    if load is RATE:
        _refuse_sessions(scenario, trace)
        own_rate = at(Fraction(1), whole=True).rate_per_s if waits(trace) else _own_rate(trace)
        if own_rate is None:
            raise _no_arrivals(trace)
        value_of, steps = speed_of, question.steps(own_rate)
    else:
        steps = 0, _last_step(trace, scenario.model.workload.get("plays"))
    found = highest_attaining(lambda step: at(value_of(step)).attains, *steps)
    if found.attains is None:
        assert found.fails is not None
        return answer(f"no {load.name}", None, None, at(value_of(found.fails), whole=True))
    value = value_of(found.attains)
    lower, higher = value * BELOW, value * ABOVE
    if load is SESSIONS:
        lower, higher = Fraction(max(1, math.floor(lower))), Fraction(math.ceil(higher))
    below = at(lower, whole=True)
    above = at(higher, whole=True) if found.fails is not None else None
    confirmed = below.attains and (above is None or not above.attains)
    verdict = "not monotone" if not confirmed else "found" if above is not None else f"every {load.name}"
    if not confirmed:
        value = _holds_to(tried) or value
    return answer(verdict, below, above, at(value, whole=True))


def _last_step(trace: Trace, plays: int | None) -> int:
    """Return the step of the most sessions that are tried: all plays, or ten times those of the trace."""
    most = plays or 10 * (int(trees_of(trace).max(initial=0)) + 1)
    return next(step for step in itertools.count() if sessions_of(step + 1) > most)


def _refuse_sessions(scenario: Scenario, trace: Trace) -> None:
    """Raise UsageError where sessions wait for each other's ends, or all begin at once and wait."""
    first = trace.arrival_ns[predecessors(trace) == NO_REQUEST]
    count = scenario.model.workload.get("concurrency")
    at_once = waits(trace) > 0 and int(np.ptp(first)) == 0 and len(first) > 1
    if count or at_once:
        got = f"{count:,} sessions at a time" if count else f"{len(first):,} sessions that begin at once"
        what, hint = "there is no rate of arrivals to scale", "--sessions finds how many sessions are held"
        raise UsageError(what, where=trace.source or "trace", got=got, hint=hint)


def _own_rate(trace: Trace) -> float | None:
    """Return the requests a second of a trace whose arrivals are known; None where no time passes."""
    span = int(trace.arrival_ns.max() - trace.arrival_ns.min()) if len(trace) else 0
    return (len(trace) - 1) * 1e9 / span if span else None


def _no_arrivals(trace: Trace) -> UsageError:
    return UsageError(
        "no arrivals to scale",
        where=trace.source or "trace",
        got=f"{len(trace)} requests, all at once" if len(trace) else "no requests",
        expected="requests that arrive over some time",
    )


def _holds_to(tried: Mapping[Fraction, Outcome]) -> Fraction | None:
    """Return the highest tried speed up to which every tried speed attains."""
    held = None
    for speed in sorted(tried):
        if not tried[speed].attains:
            break
        held = speed
    return held


def _answer(
    verdict: str,
    below: Outcome | None,
    above: Outcome | None,
    searched: _Searched,
    chosen: Outcome,
) -> dict[str, Any]:
    tried, own_rate_per_s = searched.tried, searched.own_rate_per_s
    summary = chosen.summary
    assert summary is not None
    attaining = [value for value, outcome in tried.items() if outcome.attains]
    held, last = _holds_to(tried), max(attaining, default=None)

    def rate_of(value: Fraction | None) -> float | None:
        if value is None:
            return None
        measured = tried[value].rate_per_s
        return float(value) * own_rate_per_s if measured is None and own_rate_per_s is not None else measured

    def sessions(value: Fraction | None) -> int | None:
        return None if value is None or searched.load is RATE else int(value)

    def said(outcome: Outcome | None) -> dict[str, Any]:
        return {
            "sessions": None if outcome is None else sessions(outcome.load),
            "rate_per_s": None if outcome is None else outcome.rate_per_s,
            "attainment": None if outcome is None else outcome.attainment,
        }

    cost = summary.get("cost")
    rate = None if verdict.startswith("no ") else chosen.rate_per_s
    spread = None if below is None or verdict != "found" else below.spread
    hourly = None if cost is None else cost["per_hour"]
    machines = len(summary["machines"]["requests"])
    price = machines if hourly is None else hourly
    capacity = {
        "verdict": verdict,
        "load": searched.load.behind,
        "sessions": None if rate is None else sessions(chosen.load),
        "rate_per_s": rate,
        "requests_low_per_s": None if spread is None or rate is None else rate / spread,
        "requests_high_per_s": None if spread is None or rate is None else rate * spread,
        "speed": None if rate is None or searched.load is not RATE else float(chosen.load),
        "attainment": chosen.attainment,
        "below": said(below),
        "above": said(above),
        "holds_to_per_s": rate_of(held),
        "attains_to_per_s": rate_of(last),
        "lowest_tried_per_s": rate_of(min(tried)),
        "highest_tried_per_s": rate_of(max(tried)),
        "holds_to_sessions": sessions(held),
        "attains_to_sessions": sessions(last),
        "lowest_tried_sessions": sessions(min(tried)),
        "highest_tried_sessions": sessions(max(tried)),
        "own_rate_per_s": own_rate_per_s,
        "judged": summary["slo"]["judged"],
        "waits": searched.waiting,
        "is_few": summary["slo"]["judged"] < _FEW,
        "runs": searched.runs,
        "machines": machines,
        "cost_per_hour": hourly,
        "cost_per_million_requests": None if rate is None else price / 3600 / rate * 1e6,
    }
    return {"capacity": capacity, **{name: summary[name] for name in _KEPT if name in summary}}


def waits(trace: Trace) -> int:
    """Return the number of requests that wait for other requests."""
    return int(np.count_nonzero(trace.think_ns != OPEN_LOOP))


#: Approximate number of runs per candidate.
_RUNS = 10
#: Default warm-up, left out of the measurement because caches are cold.
_WARMUP: dict[str, Any] = {"warmup": "10%"}


def plan_capacity(
    file: SweepFile,
    question: Question,
    limits: Mapping[str, str],
    shard: Shard = WHOLE,
    need_per_s: float | None = None,
    pools: bool = False,
) -> Further:
    """Return the candidates of a study, each checked as a scenario before anything runs, and those to add.

    ``limits`` are laid over the ``slo`` of the scenario. ``need_per_s`` is the rate to hold, between whose
    neighbors further counts of machines are tried; ``pools`` adds splits into pools. Raises UsageError where
    a candidate has no limits, a setting that no scenario accepts, or machines that cannot be split.
    """
    unused: list[dict[str, UsageError]] = []
    study, resolve = prepare(_measured(file, limits, question.sessions), unused)
    study = replace(study, cell_function=CELL_FUNCTION, parameters=question.parameters())
    units: set[int] = set()

    def resolve_candidate(settings: Mapping[str, Setting]) -> Resolved:
        model = load_cell(study.base, study.directory, settings).model
        if question.sessions and CONCURRENCY in settings:
            raise UsageError("is what --sessions searches", where=CONCURRENCY, hint="leave it")
        if model.replica.instant:
            raise UsageError("takes no time to limit", where="replica.instant", got="true", expected="false")
        if model.slo is None:
            hint = "--slo ttft=2s,tpot=50ms, or slo in the scenario"
            raise UsageError("no limits to attain", where="--slo", hint=hint)
        units.add(model.replica.dp)
        configuration, work = resolve(settings)
        return Resolved([configuration, study.parameters], _RUNS * work)

    def planned(space: Space, repeats: int) -> tuple[Cell, ...]:
        fresh = replace(study, files={})  # as before any file was read: equal settings are equal cells
        return lay_out(file.name, fresh, space, repeats, file.seed, resolve_candidate).cells

    cells = planned(file.space if file.space.factors() else Space(points=[{}]), file.repeats or 1)
    refuse_unused(unused)
    plan = Plan(file.name, study, cells, shard)
    for cell in plan.cells if pools else ():
        _refuse_pools(load_cell(study.base, study.directory, cell.settings).model)

    def further(settings: Sequence[Mapping[str, Setting]]) -> Sequence[Cell]:
        return planned(Space(points=settings), 1)

    return Further(plan, further, need_per_s, max(units), pools, limits)


def _refuse_pools(model: ScenarioModel) -> None:
    """Raise UsageError for a scenario whose machines are too few to split, or are split already."""
    if model.pools.prefill or model.pools.decode:
        raise UsageError("pools are set already", where="--pools", got="auto", hint="leave pools")
    if model.cluster.machines < 2:
        hint = "--set cluster.machines=8, or --grid cluster.machines=4,8"
        raise UsageError("one machine cannot be split", where="--pools", got="auto", hint=hint)


def _measured(file: SweepFile, limits: Mapping[str, str], sessions: bool) -> SweepFile:
    """Return the study with the limits, and with the default warm-up if its scenario names none.

    A search for sessions begins at one: settings of sessions at a time have their effect then.
    """
    path, scenario = file.path, file.scenario
    if isinstance(scenario, str):
        path = path.parent / scenario
        scenario = load_mapping(path)
    values = {**scenario, "measure": scenario.get("measure") or _WARMUP}
    if sessions:
        values["workload"] = {**(values.get("workload") or {}), "concurrency": 1}
    if limits:
        values["slo"] = {**(values.get("slo") or {}), **limits}
    return replace(file, path=path, scenario=values)
