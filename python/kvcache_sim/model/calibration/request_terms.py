"""What a fit to requests says to a person: the times of steps that were seen, and single costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.model.calibration.request_steps import MeasuredSums
from kvcache_sim.model.parametric import ParametricStepTime
from kvcache_sim.model.step_time import StepBatch

_LOW, _HIGH = 5.0, 95.0
#: An interval wider than this share of the value says that the log does not tell the term.
_WIDE = 0.5
#: Terms that move together in redrawn logs as closely as this are named with each other.
_TOGETHER = -0.5

#: A model and the client's constant in ms.
Fitted = tuple[ParametricStepTime, float]


@dataclass(frozen=True, slots=True)
class Term:
    """A quantity that a fit finds: its value, the middle 90 % of it over redrawn requests.

    ``unclear`` says why the log does not tell it, or is empty.
    """

    name: str
    unit: str
    value: float
    low: float
    high: float
    unclear: str


def terms_of(found: Fitted, redrawn: Sequence[Fitted], sums: MeasuredSums) -> tuple[Term, ...]:
    """Return the terms of a fit with their intervals: steps at the 10th, 50th and 90th percentile seen."""
    batches = _batches(sums)
    names = [*(name for name, _ in batches), *_SINGLE]
    units = ["ms"] * len(batches) + list(_SINGLE.values())
    values = _values(found, batches)
    others = np.array([_values(one, batches) for one in redrawn])
    low, high = np.percentile(others, (_LOW, _HIGH), axis=0)
    unclear = [
        _unclear(k, names, others) if high[k] - low[k] > _WIDE * max(values[k], 1e-12) else ""
        for k in range(len(names))
    ]
    return tuple(
        Term(name, unit, value, float(low[k]), float(high[k]), unclear[k])
        for k, (name, unit, value) in enumerate(zip(names, units, values, strict=True))
    )


#: Single costs, and their units.
_SINGLE = {
    "KV that a decode reads": "ms per 1,000 tokens",
    "a prompt's attention to itself": "ms per million token pairs",
    "client and queue before the scheduler": "ms",
}


def _values(fitted: Fitted, batches: list[tuple[str, StepBatch]]) -> list[float]:
    model, client_ms = fitted
    steps = [model.step(batch) / 1e6 for _, batch in batches]
    return [*steps, model.kv_ms_per_thousand, model.pairs_ms_per_million, client_ms]


def _batches(sums: MeasuredSums) -> list[tuple[str, StepBatch]]:
    """Return batches that were seen: decode steps by sequences, lone chunks by tokens."""
    steps = sums.steps
    decodes = steps.prefill_tokens == 0
    found: dict[str, StepBatch] = {}
    each = _mean(steps.decode_kv_tokens[decodes] / np.maximum(steps.decode_sequences[decodes], 1))
    for n in _percentiles(steps.decode_sequences[decodes]):
        kv = n * each
        found[f"decode step, {n} sequences of {each:,} tokens"] = StepBatch((), n, kv, each)
    for new in _percentiles(steps.prefill_tokens[~decodes]):
        found[f"step of a chunk of {new:,} tokens"] = StepBatch(((new, 0),))
    return list(found.items())


def _percentiles(values: NDArray[np.float64]) -> list[int]:
    return sorted({max(1, round(float(v))) for v in np.percentile(values, (10, 50, 90))})


def _mean(values: NDArray[np.float64]) -> int:
    return max(1, round(float(values.mean())))


def _unclear(k: int, names: list[str], others: NDArray[np.float64]) -> str:
    """Return that a term is not told, and from which other where one falls as it rises."""
    moves = others - others.mean(axis=0)
    size = np.sqrt((moves**2).sum(axis=0))
    if not size[k]:
        return "the log does not show it"
    together = (moves.T @ moves[:, k]) / np.maximum(size * size[k], 1e-300)
    against = int(np.argmin(together))
    if together[against] < _TOGETHER:
        return f"not told from: {names[against]}"
    return "the log tells it badly"
