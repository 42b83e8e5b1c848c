"""What the linear terms miss of a source, sampled on grids: KV by decode sequences, a past by its chunk.

Sparse attention reads the keys that an indexer chose, 2,048 of each sequence, so its time rises steeply up to
there and little beyond, where the indexer alone goes on reading: no cost that is linear in KV follows that.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kvcache_sim.model.aiconfigurator.kernels import MeasuredKernels
from kvcache_sim.model.calibration.fit import predict_ms
from kvcache_sim.model.rest_grid import RestGrid, Rests
from kvcache_sim.model.step_time import StepTime

_NS_PER_MS = 1e6


def _halves(least: int, most: int) -> tuple[int, ...]:
    """Return 1, and the powers of two from ``least`` to ``most`` with the middles between them."""
    powers = [1 << power for power in range(least.bit_length() - 1, most.bit_length())]
    return (1, *sorted(n for power in powers for n in (power, power + power // 2) if 1 < n <= most))


_SEQUENCES = _halves(2, 512)
_CHUNKS = _halves(8, 16_384)
_TOKENS = _halves(64, 65_536)
#: The chunk beside which decodes are sampled.
_CHUNK_BESIDE = 512


def sampled_rests(kernels: MeasuredKernels, linear: StepTime, most_kv: int) -> Rests:
    """Return what a linear model misses: decodes' KV, alone and beside a chunk, and a chunk's past.

    No step of more than ``most_kv`` tokens is asked for: there, as past a grid's borders, the rest is that of
    the nearest one.
    """

    def decodes(chunk: int) -> RestGrid:
        return _sampled(
            kernels, linear, _SEQUENCES, lambda n, each: (chunk, 0, n, n * min(each, most_kv // n))
        )

    past = _sampled(kernels, linear, _CHUNKS, lambda new, past: (new, past, 0, 0))
    return Rests(decodes(0), decodes(_CHUNK_BESIDE), past)


def _sampled(
    kernels: MeasuredKernels,
    linear: StepTime,
    counts: tuple[int, ...],
    step: Callable[[int, int], tuple[int, int, int, int]],
) -> RestGrid:
    rows = kernels.rows(np.array([step(count, tokens) for count in counts for tokens in _TOKENS], np.int64))
    shape = (len(counts), len(_TOKENS))
    rest = np.rint((rows.iter_ms - predict_ms(linear, rows)).reshape(shape) * _NS_PER_MS).astype(np.int64)
    return RestGrid(counts, _TOKENS, tuple(map(tuple, rest.tolist())))
