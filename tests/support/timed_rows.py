"""Rows of iterations timed by a known model."""

from dataclasses import fields

import numpy as np
from kvcache_sim.base.rng import stream
from kvcache_sim.extras.calibrate.fit import predict_ms
from kvcache_sim.extras.calibrate.rows import IterationRows
from kvcache_sim.model.parametric import ParametricStepTime

TRUE = ParametricStepTime(
    weights_ms=12.0,
    token_ms=0.04,
    exponent=2.0,
    pairs_ms_per_million=1.2,
    kv_ms_per_thousand=0.04,
    kv_mixed_ms_per_thousand=0.08,
    sequence_ms=0.01,
    sequence_mixed_ms=0.02,
    past_ms_per_thousand=0.3,
)


def random_rows(count: int, tensor_parallel: int = 1) -> IterationRows:
    draw = stream(7, f"rows-{tensor_parallel}")
    n = draw.integers(0, 65, count).astype(float)
    mean = draw.integers(10, 8000, count)
    new = np.where(draw.random(count) < 0.5, draw.integers(1, 4000, count), 0).astype(float)
    n[(n == 0) & (new == 0)] = 1
    rows = IterationRows(
        prefill_tokens=new,
        prefill_requests=(new > 0).astype(float),
        past_tokens=np.where(new > 0, draw.integers(0, 20_000, count), 0).astype(float),
        decode_sequences=n,
        decode_kv_tokens=n * mean,
        decode_max_kv_tokens=np.where(n > 0, mean * 1.0, 0.0),
        tensor_parallel=np.full(count, float(tensor_parallel)),
        iter_ms=np.ones(count),
    )
    return timed(rows, TRUE)


def timed(rows: IterationRows, model: ParametricStepTime) -> IterationRows:
    values = {name: getattr(rows, name) for name in rows.__dataclass_fields__}
    return IterationRows(**values | {"iter_ms": predict_ms(model, rows)})


def rows_of(count: int, **columns: object) -> IterationRows:
    """Rows of 1 ms on one GPU with these columns; all others are 0."""
    zero = {field.name: np.zeros(count) for field in fields(IterationRows)}
    given = {name: np.asarray(value, float) for name, value in columns.items()}
    return IterationRows(**zero | {"tensor_parallel": np.ones(count), "iter_ms": np.ones(count)} | given)
