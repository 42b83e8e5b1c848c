"""Comparisons of finished runs with the first of them, in Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from kvcache_sim.api.calls import public
from kvcache_sim.api.html import html_list, html_page, html_table
from kvcache_sim.api.plot import Plot, draw_plot
from kvcache_sim.api.run import Run, load_run
from kvcache_sim.api.scenario import Scenario
from kvcache_sim.api.simulate import simulate
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng.root import repeat_seed
from kvcache_sim.report.compare import comparison, printed, text
from kvcache_sim.report.compare.checked import check_verdict
from kvcache_sim.report.compare.verdict import verdict
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.run_report import write_report
from kvcache_sim.scenario.presets import scenario_file


class Comparison:
    """The differences of runs from the first: settings, figures with intervals, sentences.

    ``print`` shows the text of ``kvsim compare``, a notebook the same as tables.

    Attributes:
        figures: One mapping a further run, as ``kvsim compare --format json`` prints it: latencies in ms with
            the ratio to the baseline, shares as fractions of 1 with the difference.
        sentences: Sentences on the differences and on the method of the intervals.
    """

    def __init__(
        self,
        sides: Sequence[Sequence[FinishedRun]],
        rank_saturated: bool = False,
        smallest_percent: float = 100 * comparison.LEAST_DIFFERENCE,
    ) -> None:
        self._first, *self._others = sides
        least = smallest_percent / 100
        self._found = [
            comparison.compare(self._first, other, rank_saturated, least) for other in self._others
        ]

    @property
    def figures(self) -> list[dict[str, Any]]:
        """Return the comparisons as plain values, as ``kvsim compare --format json`` prints them."""
        return printed.as_json(self._found)

    @property
    def sentences(self) -> list[str]:
        """Return the sentences of the verdicts, of the differences and of the method of the intervals."""
        return [line for found in self._found for line in (*verdict(found).sentences, *_further(found))]

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` of a row a run and figure: its value, the baseline's, the change.

        Times are in ms; their change is a ratio. Shares are fractions; their change is a difference.
        """
        import pyarrow as pa

        return pa.Table.from_pylist(
            [
                {"run": found["run"], "against": found["baseline"], "figure": name, **numbers}
                for found in self.figures
                for name, numbers in found["numbers"].items()
            ]
        )

    @public
    def check(self) -> list[dict[str, Any]]:
        """Run the scenarios again at another seed, and return what became of each certain difference.

        Returns:
            A mapping a claim, as ``kvsim compare --check`` prints it: ``name`` of the figure, ``sentence``,
            ``changes``, ``outcome``, and ``true``, None where a trace has the same requests at every seed.
        """
        pairs = zip(self._found, self._others, strict=True)
        checked = [one for found, other in pairs for one in check_verdict(found, self._first[0], other[0])]
        return [one._asdict() for one in checked]

    def plot(self, kind: str) -> Plot:
        """Return one picture of all runs side by side.

        Args:
            kind: ``ttft``, ``occupancy``, … (``kvsim plot`` lists them).

        Raises:
            UsageError: The kind is unknown, or the extra ``report`` is not installed.
        """
        return draw_plot(kind, [side[0] for side in (self._first, *self._others)])

    @public
    def report(self, path: str | os.PathLike[str] = "report.html", force: bool = False) -> Path:
        """Write the page of all runs side by side, as ``kvsim report`` does.

        Args:
            path: File to write.
            force: Replace an existing file.
        """
        return write_report([side[0] for side in (self._first, *self._others)], Path(path), force)

    def text(self, all_settings: bool = False) -> str:
        """Return the text that ``kvsim compare`` prints.

        Args:
            all_settings: True to list every setting that differs, as ``--settings`` does.
        """
        return "\n\n".join(printed.comparison_text(found, all_settings) for found in self._found)

    def __str__(self) -> str:
        """Return the verdicts, tables and sentences."""
        return self.text()

    def _repr_html_(self) -> str:
        parts = []
        for found in self._found:
            title, answer = f"{found.label} against {found.baseline}", html_list(verdict(found).sentences)
            settings = html_table(text.settings_table(found)) if found.settings else ""
            folded = f"<details><summary>{escape(text.settings_line(found))}</summary>{settings}</details>"
            numbers = html_table(text.numbers_table(found))
            parts.append(html_page(title, answer, folded, numbers, html_list(_further(found))))
        return "".join(parts)

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(f.label for f in self._found)} against {self._first[0].label}>"


def _further(found: comparison.Comparison) -> list[str]:
    """Return the sentences that follow a verdict."""
    return [] if text.no_comparison(found) else [*text.sentences(found), text.how_paired(found)]


@public
def compare(
    baseline: Run | str | os.PathLike[str],
    *others: Run | str | os.PathLike[str],
    repeats: int = 1,
    smallest: float = 2,
    rank_saturated: bool = False,
) -> Comparison:
    """Compare runs with a baseline; runs of the same requests are paired request by request.

    Args:
        baseline: The first run, its directory, or a scenario to run: its file or ``preset:NAME``.
        others: One or more of these.
        repeats: Runs of each scenario, with the same seeds.
        smallest: Smallest difference of interest, in percent.
        rank_saturated: Rank saturated runs by latency too, not only by output rate.

    Returns:
        The differences of each other run from the baseline, with 95 % intervals.

    Raises:
        UsageError: Only one run is given, or a directory holds no finished run.
        InputOutputError: A file of a run was changed.
    """
    if not others:
        raise UsageError("nothing to compare with", expected="two or more runs")
    sides = [_side(given, repeats) for given in (baseline, *others)]
    names = [side[0].label for side in sides]
    for number, (side, name) in enumerate(zip(sides, names, strict=True), 1):
        for run in side:
            run.label = name if names.count(name) == 1 else f"{name} ({number})"
    return Comparison(sides, rank_saturated, smallest)


def _side(given: Run | str | os.PathLike[str], repeats: int) -> list[FinishedRun]:
    """Return the runs of a side: the run itself, or those of its scenario."""
    if isinstance(given, Run) or Path(given).is_dir() or not scenario_file(Path(given)).is_file():
        run = given if isinstance(given, Run) else load_run(given)
        if repeats != 1:
            raise UsageError("a finished run cannot be repeated", where="repeats", got=run.name)
        return [run.labelled(run.name)]
    first = Scenario.load(given, idle="warn")
    seeds = [first["seed"], *(repeat_seed(first["seed"], number) for number in range(1, repeats))]
    name = scenario_file(Path(given)).stem
    return [simulate(None, first, seed=seed).labelled(name) for seed in seeds]
