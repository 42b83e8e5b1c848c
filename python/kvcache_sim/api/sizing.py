"""The load that configurations hold, in Python."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from kvcache_sim.api.calls import at_least_one, public
from kvcache_sim.api.html import html_page, html_table
from kvcache_sim.api.plot import Plot
from kvcache_sim.api.scenario import ScenarioLike, as_scenario
from kvcache_sim.api.simulate import resolve_requests
from kvcache_sim.api.sweeping import requests_in_a_file, run_cells, settings_space, study_of
from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.study.sizing import text
from kvcache_sim.extras.study.sizing.candidate import plan_capacity
from kvcache_sim.extras.study.sizing.question import (
    RATE,
    Answer,
    Question,
    parse_attain,
    parse_limits,
    parse_need,
    parse_rate,
)
from kvcache_sim.extras.study.sweeps.plan import WHOLE
from kvcache_sim.extras.study.sweeps.tables import Row
from kvcache_sim.report.picture import NothingToDraw
from kvcache_sim.report.plotting import require_plotting


class Capacity:
    """The highest rate of requests that each candidate holds.

    ``print`` shows the text of ``kvsim capacity``.

    Attributes:
        rows: One row a candidate: its settings as ``set.NAME``, ``capacity.rate_per_s`` in requests a second,
            the rates that confirm it, and the figures of the run at that rate.
        attain: Share of requests that must be within all limits, from 0 to 1.
    """

    def __init__(self, rows: Sequence[Row], attain: float, answer: Answer | None = None) -> None:
        self.rows = list(rows)
        self.attain = attain
        self._given = answer or Answer(tuple(rows))

    @property
    def rate_per_s(self) -> float | None:
        """Return the highest rate that any candidate holds, in requests a second; None: none holds any."""
        return self._most() if self._answer().load is RATE else None

    @property
    def sessions(self) -> int | None:
        """Return the most sessions at a time that any candidate holds; None: none holds any, or a rate was
        searched.
        """
        most = None if self._answer().load is RATE else self._most()
        return None if most is None else int(most)

    def _most(self) -> float | None:
        answer = self._answer()
        return max((answer.rate(row) for row in answer.holding), default=None)

    @property
    def frontier(self) -> list[Row]:
        """Return the candidates that no other beats in both cost and rate, from the cheapest on."""
        return [dict(row) for row in self._answer().frontier]

    @public
    def cheapest(self, need_per_s: float | None = None) -> Row | None:
        """Return the row of the cheapest candidate.

        Args:
            need_per_s: Rate to hold, in requests a second. None: the rate that was asked for, without one
                the cheapest per request.

        Returns:
            Its row; None if no candidate holds the rate.
        """
        found = self._answer(need_per_s).cheapest
        return None if found is None else dict(found)

    def plot(self) -> Plot:
        """Return cost against rate; raises UsageError where no candidate holds any rate."""
        require_plotting()
        drawn = text.draw(self._answer())
        if isinstance(drawn, NothingToDraw):
            raise UsageError(f"nothing to draw: {drawn.reason}")
        return Plot(drawn)

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` of a row a candidate."""
        from kvcache_sim.extras.study.sweeps.tables import arrow_rows

        return arrow_rows(self.rows)

    def to_pandas(self) -> Any:
        """Return a pandas data frame of a row a candidate; needs pandas."""
        return self.to_arrow().to_pandas()

    def _answer(self, need_per_s: float | None = None) -> Answer:
        return self._given if need_per_s is None else replace(self._given, need_per_s=need_per_s)

    def __len__(self) -> int:
        """Return the number of candidates."""
        return len(self.rows)

    def __str__(self) -> str:
        """Return the table and the sentences."""
        return text.answer_text(self._answer(), self.attain)

    def __repr__(self) -> str:
        most = self._most()
        rate = "none holds the limits" if most is None else f"at most {self._answer().load.text(most)}"
        return f"<Capacity of {len(self)} candidates: {rate}>"

    def _repr_html_(self) -> str:
        return html_page(f"{len(self)} candidates", html_table(text.candidate_table(self._answer())))


@public
def capacity(
    trace_or_workload: Any = None,
    /,
    scenario: ScenarioLike = None,
    *,
    slo: str | Mapping[str, str] | None = None,
    attain: str | float = "99%",
    need: str | float = "",
    min_rate: str | float = "",
    max_rate: str | float = "",
    pools: Literal["", "auto"] = "",
    sessions: bool = False,
    grid: Mapping[str, Sequence[Any]] | None = None,
    rows: Sequence[Mapping[str, Any]] = (),
    jobs: int = 1,
    directory: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Capacity:
    """Find the highest rate at which a share of the requests stays within limits, for each candidate.

    Arrivals keep their pattern: their times are scaled.

    Args:
        trace_or_workload: Requests: a ``Trace``, a trace file, a workload or columns, as ``simulate`` takes
            them.
        scenario: A ``Scenario``, the path of a scenario file, or settings; None: all defaults.
        slo: Limits, ``"ttft=2s,tpot=50ms"`` or ``{"ttft": "2s"}``; they replace those of the scenario.
        attain: Share of requests that must be within all limits, ``"99%"`` or 0.99.
        need: Rate to hold, such as ``"20/s"``: numbers of machines between those given are tried too.
        min_rate: Lowest rate tried, as text or in requests a second. Default: a thousandth of the recorded.
        max_rate: Highest rate tried. Default: a thousand times the recorded.
        pools: ``"auto"`` also tries splits of the machines into prefill and decode pools.
        sessions: Sessions at a time are searched (``workload.concurrency``), not the rate; ``need`` is then a
            number such as ``"200"``.
        grid: Dotted setting → values of the candidates, in all combinations; without ``grid`` and ``rows``
            the scenario alone is searched.
        rows: Whole sets of settings, each combined with ``grid``.
        jobs: Processes that search candidates.
        directory: Directory of finished candidates, which a later call reuses.
        settings: Keys that replace those of the scenario.

    Returns:
        The rates, in requests a second, to 2 %.

    Raises:
        UsageError: A limit or setting is wrong; nothing has run.
        TraceError: The trace has data that cannot be trusted.
    """
    at_least_one(jobs=jobs)
    least, most = _rate_per_s(min_rate, "min_rate"), _rate_per_s(max_rate, "max_rate")
    question = Question(parse_attain(_text(attain, "{:.6f}%", 100), "attain"), least, most, sessions)
    limits = (
        parse_limits(slo if isinstance(slo, str) else ",".join(map("=".join, slo.items())), "slo")
        if slo
        else {}
    )
    space = settings_space(grid or {}, rows)
    asked, given = resolve_requests(trace_or_workload, as_scenario(scenario), settings)
    with requests_in_a_file(asked, given) as (written, folder):
        needed = parse_need(str(need), "need", True) if sessions and need else _rate_per_s(need, "need")
        further = plan_capacity(study_of(written, space), question, limits, WHOLE, needed, bool(pools))
        where = directory if directory is not None or jobs == 1 else folder
        found = run_cells(further.plan, where, jobs, further)
        return Capacity(found, question.attain, further.answer(found))


def _text(value: str | float, form: str, scale: float = 1) -> str:
    """Return a number as the command line has it; text as it is."""
    return value if isinstance(value, str) else form.format(scale * value)


def _rate_per_s(rate: str | float, where: str) -> float | None:
    """Return requests a second; None for ""."""
    return None if rate == "" else parse_rate(_text(rate, "{:f}/s"), where)
