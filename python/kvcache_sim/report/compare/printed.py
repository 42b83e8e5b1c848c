"""A comparison as printed text and as JSON: the verdict first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvcache_sim.report.compare import text
from kvcache_sim.report.compare.comparison import Comparison
from kvcache_sim.report.compare.verdict import verdict
from kvcache_sim.report.plain_table import plain_sentences, plain_table


def comparison_text(comparison: Comparison, all_settings: bool = False) -> str:
    """Return the verdict, the settings that differ in a line or as a table, the numbers, and sentences."""
    answer = verdict(comparison).sentences
    settings = text.settings_line(comparison)
    opening = [*answer, settings]
    said = (
        [] if text.no_comparison(comparison) else [*text.sentences(comparison), text.how_paired(comparison)]
    )
    parts = [plain_sentences(opening)]
    if all_settings and comparison.settings:
        parts.append(plain_table(text.settings_table(comparison)))
    if comparison.differences:
        parts.append(plain_table(text.terminal_table(comparison)))
    return "\n\n".join([*parts, plain_sentences(said)] if said else parts)


def as_json(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return comparisons as plain values for JSON."""
    return [_plain(comparison) for comparison in comparisons]


def _plain(comparison: Comparison) -> dict[str, Any]:
    answer = verdict(comparison)
    ranking = answer.difference
    numbers = {}
    for d in comparison.differences:
        model = comparison.model.intervals.get(d.statistic.metric, (None, None))
        numbers[d.statistic.metric] = {
            "baseline": d.baseline,
            "value": d.value,
            "change": d.change,
            "change_as": "difference" if d.statistic.is_share else "ratio",
            "low": d.low,
            "high": d.high,
            "model_low": model[0],
            "model_high": model[1],
        }
    return {
        "baseline": comparison.baseline,
        "run": comparison.label,
        "verdict": {
            "better": answer.better,
            "ranked_by": None if ranking is None else ranking.statistic.metric,
            "sentences": list(answer.sentences),
        },
        "step_times": list(comparison.certainty.sources),
        "saturated": [bool(sentence) for sentence in comparison.saturated],
        "settings": {name: [text.shown(v) for v in values] for name, values in comparison.settings.items()},
        "paired_by": comparison.paired_by,
        "requests": comparison.requests,
        "replications": comparison.replications,
        "identical": comparison.identical,
        "numbers": numbers,
        "sentences": text.sentences(comparison),
    }
