"""The library's times on a grid, fitted by the integer table's form, and judged at steps off the grid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.model.aiconfigurator.kernels import MeasuredKernels
from kvcache_sim.model.aiconfigurator.sampled import SampledStepTime
from kvcache_sim.model.calibration.accuracy import PhaseError, phase_errors
from kvcache_sim.model.calibration.design import Form
from kvcache_sim.model.calibration.fit import predict_ms, solve
from kvcache_sim.model.parametric import six_digits
from kvcache_sim.rng import stream

_SEQUENCES = (*range(1, 33), 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 384, 512)
_KV_EACH = (16, 64, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536)
_TOKENS = (
    1,
    8,
    16,
    32,
    64,
    96,
    128,
    192,
    256,
    384,
    512,
    768,
    1024,
    1536,
    2048,
    3072,
    4096,
    6144,
    8192,
    12_288,
    16_384,
)
_PAST = (0, 256, 1024, 4096, 16_384, 65_536)
#: No step of more KV than this is sampled: no GPU holds it.
_MOST_KV = 2_000_000
#: A past this many times a chunk, or more, is not sampled: no step is like that but the last of a prompt.
_PAST_TIMES = 512
_RANDOM_DECODES = 150
_RANDOM_PROMPTS = 300
_RANDOM_MIXED = 1000
_OFF_GRID = 200


def sampled_step_time(kernels: MeasuredKernels) -> tuple[SampledStepTime, list[PhaseError]]:
    """Return the table of a deployment's kernels, and its error by phase at steps that were not sampled."""
    rows = kernels.rows(_grid())
    form = Form(
        base_knots=tuple(float(n) for n in _TOKENS),
        longest_knots=(),
        graph_tokens=0,
        decode_knots=tuple(float(n) for n in _SEQUENCES),
    )
    columns = form.columns(rows)
    # Two costs of KV apart, where a set's second is what steps with a chunk cost more.
    kv, kv_mixed = form.floors.shared
    columns[rows.prefill_tokens > 0, kv] = 0.0
    found = solve(columns, rows, form.floors, form.known_ms(rows)).coefficients
    mixed_ms = six_digits(float(found[kv_mixed]))
    model = SampledStepTime(replace(form.model(found), kv_mixed_ms_per_thousand=mixed_ms))
    unseen = kernels.rows(_random_steps("aiconfigurator.off-grid", (_OFF_GRID, _OFF_GRID, _OFF_GRID)))
    return model, phase_errors(unseen, predict_ms(model, unseen))


def _grid() -> NDArray[np.int64]:
    decode = [(0, 0, n, n * kv) for n in _SEQUENCES for kv in _KV_EACH if n * kv <= _MOST_KV]
    prompt = [(new, past, 0, 0) for new in _TOKENS for past in _PAST if past < _PAST_TIMES * new]
    return np.concatenate(
        (
            np.array(decode + prompt),
            _random_steps("aiconfigurator.grid", (_RANDOM_DECODES, _RANDOM_PROMPTS, _RANDOM_MIXED)),
        )
    )


def _random_steps(name: str, counts: tuple[int, int, int]) -> NDArray[np.int64]:
    """Return so many decode steps, prompts and mixed steps, each figure spread evenly over its magnitudes."""
    draw = stream(20261122, name)
    decodes, _, mixed = counts
    total = sum(counts)

    def spread(least: int, most: int) -> NDArray[np.int64]:
        return np.exp(draw.uniform(np.log(least), np.log(most + 1), total)).astype(np.int64)

    new, n = spread(8, 8192), spread(1, 256)
    past = spread(64, 32_768) * (draw.random(total) < 0.5)
    kv = np.minimum(n * spread(16, 32_768), _MOST_KV)
    with_prompt = np.arange(total) >= decodes
    with_decodes = (np.arange(total) < decodes) | (np.arange(total) >= total - mixed)
    past = np.minimum(past, _PAST_TIMES * new)
    return np.stack((new * with_prompt, past * with_prompt, n * with_decodes, kv * with_decodes), axis=1)
