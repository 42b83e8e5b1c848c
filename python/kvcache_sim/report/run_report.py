"""The report of finished runs: its opening, its sections in order, and every number of ``summary.json``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import ascii_uppercase

from kvcache_sim.base.output import write_new
from kvcache_sim.metrics.certainty import source_line
from kvcache_sim.metrics.figure import Figure
from kvcache_sim.metrics.figures import FIGURES
from kvcache_sim.metrics.names import flatten
from kvcache_sim.metrics.saturation import saturation_sentence
from kvcache_sim.report.compare.comparison import Comparison, compare
from kvcache_sim.report.compare.text import how_paired, shown
from kvcache_sim.report.compare.verdict import verdict
from kvcache_sim.report.explain.case import Case
from kvcache_sim.report.explain.certainty import missing_intervals
from kvcache_sim.report.explain.sentences import explain
from kvcache_sim.report.explain.worst import worst_table
from kvcache_sim.report.finished import FinishedRun, find_trace
from kvcache_sim.report.headline import Change, Headline, headlines
from kvcache_sim.report.page import build_page
from kvcache_sim.report.parts import (
    Asked,
    Disclosure,
    Part,
    Section,
    Sentences,
    TextSection,
    definition_html,
    verdict_html,
)
from kvcache_sim.report.picture import NothingToDraw, Table, Value
from kvcache_sim.report.pictures import PICTURES
from kvcache_sim.report.plotting import require_plotting
from kvcache_sim.report.render import draw
from kvcache_sim.scenario.subject import subject_line


def opening(runs: Sequence[FinishedRun], cards: Sequence[Headline], answers: Sequence[str], note: str) -> str:
    """Return the answers, the lines of the runs, the cards, and how the changes were measured."""
    several = len(runs) > 1
    shown = "".join(card_html(card, several) for card in cards)
    computed = "".join(_sources(line for run in runs for line in missing_intervals(run).values()))
    return (
        f'{verdict_html(answers)}<div class="subjects">{_subjects(runs)}</div>'
        f'<div class="cards">{shown}</div>{definition_html(note)}{computed}'
    )


def _subjects(runs: Sequence[FinishedRun]) -> str:
    """Return each run's label and subject, and the sources of step times; what the first has is said once."""
    parts = [subject_line(run.scenario, len(run.requests["request"])).split(" · ") for run in runs]
    lines = []
    for number, (run, described) in enumerate(zip(runs, parts, strict=True)):
        text = escape(" · ".join(part for part in described if not number or part not in parts[0]))
        tagged, whole = _tag(number) if len(runs) > 1 else "", escape(" · ".join(described))
        lines.append(f'<p class="subject" title="{whole}">{tagged}<b>{escape(run.label)}</b> {text}</p>')
    return "".join([*lines, *_sources([source_line(run.summary) for run in runs])])


def _sources(lines: Iterable[str | None]) -> list[str]:
    """Return lines on where figures come from, equal ones once."""
    return [f'<p class="source">{escape(line)}</p>' for line in dict.fromkeys(lines) if line]


def _tag(number: int) -> str:
    return f'<span class="letter r{number % 6}">{tag(number)}</span> '


def card_html(card: Headline, several: bool) -> str:
    """Return a card; with several runs its values have their tags."""
    values = "".join(
        f'<span class="value" data-run="{number}">{_tag(number) if several else ""}{escape(value)}</span>'
        + _intervals(intervals)
        for number, (value, intervals) in enumerate(zip(card.values, card.certain, strict=True))
    )
    changes = "".join(
        _changed(number, change, len(card.values) > 2)
        for number, change in enumerate(card.changes)
        if change is not None
    )
    return (
        f'<div class="card" data-figure="{escape(card.key)}" title="{escape(card.definition)}">'
        f'<span class="words">{escape(card.words)}</span><span class="values">{values}</span>{changes}</div>'
    )


def _intervals(text: str) -> str:
    """Return intervals in words as HTML that breaks between them."""
    parts = " ".join(f"<span>{escape(part)}</span>" for part in text.replace(", ", ",\n").splitlines())
    return f'<span class="interval">{parts}</span>' if parts else ""


def _changed(number: int, change: Change, named: bool) -> str:
    trend = "even" if change.better is None else "better" if change.better else "worse"
    word = "" if change.better is None else f' <span class="way">{trend}</span>'
    interval = f'<span class="interval">{escape(change.interval)}</span>' if change.interval else ""
    who = f"{tag(number)} " if named else ""
    return (
        f'<span class="delta {trend}" data-run="{number}">{who}<b>{escape(change.amount)}</b>{word}</span>'
        f"{interval}"
    )


def tag(number: int) -> str:
    """Return the short name of a run by its index, from 0: A to Z, then AA, AB, …"""
    name = ""
    number += 1
    while number:
        number, source = divmod(number - 1, len(ascii_uppercase))
        name = ascii_uppercase[source] + name
    return name


def scalars_table(runs: Sequence[FinishedRun]) -> Table:
    """Return a row a number of ``summary.json``, a column a run, then unit and definition."""
    flat = [flatten(run.summary) for run in runs]
    names = list(dict.fromkeys(name for summary in flat for name in summary))
    rows = []
    for name in names:
        leaves = [summary.get(name) for summary in flat]
        if name.startswith("definitions.") or any(isinstance(leaf, list) for leaf in leaves):
            continue
        values = [_value(leaf) for leaf in leaves]
        if any(value is not None for value in values):
            figure = figure_of(name)
            unit, meaning = (figure.unit, figure.meaning) if figure else ("", "")
            rows.append((name, *values, unit, meaning))
    return Table(("number", *(run.label for run in runs), "unit", "definition"), tuple(rows))


def figure_of(name: str) -> Figure | None:
    """Return the figure, or the family of figures, that a dotted name of the summary belongs to."""
    for figure, pattern in _PATTERNS:
        if pattern.fullmatch(name):
            return figure
    return None


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"<\w+>", ".+", re.escape(name)))


_PATTERNS = [(figure, _pattern(figure.name)) for figure in FIGURES]


def _value(leaf: object) -> Value:
    if isinstance(leaf, float):
        return round(leaf, 6)
    if isinstance(leaf, bool) or not isinstance(leaf, (int, str)):
        return None if leaf is None else str(leaf)
    return leaf


def _warnings_of(run: FinishedRun) -> list[str]:
    sentence = saturation_sentence(run.summary)
    return [*([f"saturated: {sentence}"] if sentence else []), *run.manifest.get("warnings", [])]


_WORST = 10
_WORST_DEFINITION = (
    "The requests that waited longest for their first token. Times the median: TTFT over the run's median. "
    "Most of it: the part of TTFT that exceeds its own median by most. 'kvsim explain RUN --request ID' "
    "lists the events of one request, '--worst N --between T1 T2' the worst of a time window."
)


_SETTINGS_DEFINITION = "The settings that are not equal in all runs."


def write_report(runs: Sequence[FinishedRun], path: Path, force: bool) -> Path:
    """Write the HTML report of runs and return its path; raises UsageError and OutputExistsError."""
    require_plotting()
    write_new(path, report_page(runs).encode(), force)
    return path


def report_page(runs: Sequence[FinishedRun]) -> str:
    """Return the HTML report of one run, or of several side by side. Cost: seconds, mostly the charts."""
    warnings = [f"{run.label}: {text}" for run in runs for text in _warnings_of(run)]
    for run in runs:
        find_trace(run)  # pictures that need a missing trace show the reason
    cases = [Case(run) for run in runs]
    comparisons = [compare([runs[0]], [run]) for run in runs[1:]]
    title = "kvsim report: " + ", ".join(run.label for run in runs)
    parts: list[Part] = []
    if any(comparison.settings for comparison in comparisons):
        parts.append(Section("Which settings differ?", _SETTINGS_DEFINITION, _settings(runs, comparisons)))
    if sides := _sides(cases):
        parts.append(Sentences("Main causes", sides))
    missing = []
    for kind, row in PICTURES.items():
        picture = draw(kind, runs)
        if isinstance(picture, NothingToDraw):
            missing.append((picture.title, picture.reason))
        else:
            parts.append(Asked(row.question, picture))
        if kind == "queue":
            parts.append(
                Section("Which requests waited longest?", _WORST_DEFINITION, worst_table(runs, _WORST))
            )
    if missing:
        table = Table(("picture", "reason"), tuple(missing))
        parts.append(
            Disclosure(
                "What is not drawn?", f"{len(missing)} of {len(PICTURES)} pictures, with the reasons", table
            )
        )
    figures = scalars_table(runs)
    parts.append(Disclosure("What does each number mean?", f"all {len(figures.rows)} figures", figures))
    for run in runs:
        parts.append(TextSection(f"Scenario of {run.label}, resolved", run.scenario_text))
        manifest = json.dumps(run.manifest, indent=2, sort_keys=True, ensure_ascii=False)
        parts.append(TextSection(f"Manifest of {run.label}", manifest))
    answers = [verdict(comparison).sentences[0] for comparison in comparisons]
    note = f"Changes are from {runs[0].label}. {how_paired(comparisons[0])}" if comparisons else ""
    opens = opening(runs, headlines(cases, comparisons), answers, note)
    return build_page(title, warnings, parts, opens)


def _sides(cases: Sequence[Case]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return label → topic → sentences; what all of several runs say stands once, under the first label."""
    said = {
        case.run.label: {topic: tuple(named.values()) for topic, named in explain(case).items()}
        for case in cases
    }
    everywhere: set[str] = set()
    if len(cases) > 1:
        everywhere = set.intersection(*({t for ts in side.values() for t in ts} for side in said.values()))
    common = {
        topic: tuple(t for t in texts if t in everywhere) for topic, texts in said[cases[0].run.label].items()
    }
    alone = {
        label: {topic: tuple(t for t in texts if t not in everywhere) for topic, texts in side.items()}
        for label, side in said.items()
    }
    sides = {"both runs" if len(cases) == 2 else "all runs": common, **alone}
    kept = {label: {topic: texts for topic, texts in side.items() if texts} for label, side in sides.items()}
    return {label: side for label, side in kept.items() if side}


def _settings(runs: Sequence[FinishedRun], comparisons: Sequence[Comparison]) -> Table:
    """Return the settings that are not equal in all runs, a column a run."""
    base = {name: values[0] for one in reversed(comparisons) for name, values in one.settings.items()}
    rows = tuple(
        (name, *(shown(v) for v in (first, *(one.settings.get(name, (0, first))[1] for one in comparisons))))
        for name, first in base.items()
    )
    return Table(("setting", *(run.label for run in runs)), rows)
