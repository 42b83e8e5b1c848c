"""The moves and the decisive assumptions, as a table with sentences, or as JSON."""

from __future__ import annotations

from typing import Any

from kvcache_sim.base.units import format_time_ms, significant
from kvcache_sim.extras.study.sensitivity.moves import ANSWERS, Move, Sensitivity, Values
from kvcache_sim.metrics.certainty import certainty_lines, source_line
from kvcache_sim.report.picture import Table, Value
from kvcache_sim.report.plain_table import plain_sentences, plain_table

_WORST, _TOGETHER = "all at once, at worst", "together (independent)"
_NOT_90 = "All at their worst at once is not a 90 % interval; together, as independent errors, is."


def sensitivity_text(found: Sensitivity) -> str:
    """Return the moves as a table, the assumptions with their sources, and the decisive assumptions."""
    parts = [
        "\n".join(filter(None, (source_line(found.summary), *certainty_lines(found.summary)))),
        plain_table(_moves_table(found)),
        plain_table(_intervals_table(found)),
        plain_sentences(sentences(found)),
    ]
    return "\n\n".join(parts)


def sentences(found: Sensitivity) -> list[str]:
    """Return sentences on the decisive assumption, over all answers and for each, and on unstated ones."""
    if not found.moves:
        return ["This run assumes nothing with an error: no service time, no bounded capacity, no links."]
    decisive = found.decisive()
    if decisive is None:
        return ["No assumption is decisive: none moves an answer by 0.1 % within its interval."]
    said = [f"Decisive assumption: {_name(decisive)}."]
    for words, _, _ in ANSWERS:
        move = found.decides(words)
        if move is not None:
            said.append(f"{words} depends most on {_name(move)}: {_cell(found, move, words)}.")
        elif found.answers[words] is not None:
            said.append(f"{words} depends on none of them.")
    unstated = [_name(move) for move in found.moves if move.assumption and not move.assumption.is_stated]
    if unstated:
        said.append(f"No error is stated for {'; '.join(unstated)}: the intervals are assumed.")
    return [*said, _NOT_90] if found.together is not None else said


def sensitivity_json(found: Sensitivity) -> dict[str, Any]:
    """Return the same as plain values: answers, assumptions with their intervals, sources and both ends."""

    def plain(move: Move) -> dict[str, Any]:
        return {"slow": move.slow, "fast": move.fast}

    decisive = found.decisive()
    return {
        "answers": found.answers,
        "assumptions": [
            {
                "name": move.assumption.name,
                "low": move.assumption.factors.low,
                "high": move.assumption.factors.high,
                "stated": move.assumption.stated,
                "is_stated": move.assumption.is_stated,
                **plain(move),
            }
            for move in found.moves
            if move.assumption is not None
        ],
        "all_at_once": plain(found.all_at_once) if found.all_at_once is not None else None,
        "together": plain(found.together) if found.together is not None else None,
        "step_times": found.summary.get("step_times"),
        "certainty": found.summary["certainty"],
        "decides": _name(decisive) if decisive is not None else None,
        "decides_each": {
            words: _name(move) for words, _, _ in ANSWERS if (move := found.decides(words)) is not None
        },
    }


def _moves_table(found: Sensitivity) -> Table:
    words = tuple(words for words, _, _ in ANSWERS)
    several = ((_TOGETHER, found.together), (_WORST, found.all_at_once))
    every = [(_name(move), move) for move in found.moves]
    every += [(name, move) for name, move in several if move is not None]
    first: tuple[Value, ...] = ("as simulated", *(_figure(found.answers, word) for word in words))
    moved = (tuple[Value, ...]((name, *(_cell(found, move, word) for word in words))) for name, move in every)
    return Table(("", *words), (first, *moved))


def _intervals_table(found: Sensitivity) -> Table:
    known = [move.assumption for move in found.moves if move.assumption is not None]
    rows = tuple((one.name, one.interval, one.stated) for one in known)
    return Table(("assumption", "between", "by"), rows)


def _figure(values: Values, words: str) -> str:
    value = values[words]
    if value is None:
        return "–"
    if words == "hit rate":
        return f"{100 * value:.1f} %"
    return significant(value) if words == "tokens/s" else format_time_ms(value)


def _cell(found: Sensitivity, move: Move, words: str) -> str:
    """Return the changes at both ends, the slow one first: points of a share, else per cent."""
    changes = [found.change(values, words) for values in (move.slow, move.fast)]
    if any(change is None for change in changes):
        return "–"
    unit = "points" if words == "hit rate" else "%"
    return " … ".join(f"{round(100 * (change or 0.0), 1) + 0.0:+.1f}" for change in changes) + f" {unit}"


def _name(move: Move) -> str:
    return move.assumption.name if move.assumption is not None else _WORST
