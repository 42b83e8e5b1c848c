"""A TP degree that was not measured, from those that were: what a degree splits, and what it does not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import UsageError
from kvcache_sim.model.calibration.design import Form, padded_rows
from kvcache_sim.model.calibration.fit import solve
from kvcache_sim.model.calibration.rows import IterationRows
from kvcache_sim.model.cuda_graphs import capture_sizes
from kvcache_sim.model.parametric import ParametricStepTime, six_digits

_BASE = (1.0, 32.0, 128.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0)
#: The place of the longest sequence's cost among the columns; of the costs a sequence after it, beside KV.
_LONGEST = len(_BASE)
_SEQUENCE = (_LONGEST + 3, _LONGEST + 4)
#: A degree splits and shares these: a step's fixed cost, and its cost a token above 32 tokens.
_BOTH = (0, *(place for place, knot in enumerate(_BASE) if knot > 32))
#: No degree splits these: what a step of few tokens takes more for each of them.
_SHARED = (1, *_SEQUENCE)


@dataclass(frozen=True, slots=True)
class SplitKv:
    """How a decode kernel shares out its work: a sequence's KV heads, on one GPU's multiprocessors.

    Each pair of a sequence and a KV head is read by as many cores as there are for it, at least one. The
    defaults are a B300's and those of most models with grouped queries.
    """

    kv_heads: int = 8
    multiprocessors: int = 148

    def share(
        self, sequences: NDArray[np.float64], tensor_parallel: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the share of its longest sequence that one core reads; above 1 they take turns."""
        heads = np.maximum(self.kv_heads / tensor_parallel, 1)
        turns = np.maximum(sequences, 1) * heads / self.multiprocessors
        return np.where(turns > 1, turns, 1 / np.floor(1 / np.minimum(turns, 1.0)))


@dataclass(frozen=True, slots=True)
class TensorParallelFit:
    """A model family over TP degrees: a coefficient is ``shared + split / tp``.

    Weights, attention and GEMMs are split; latency, host work, communication and what a sequence costs the
    sampler are not. The longest sequence alone takes ``longest_ms`` a thousand tokens on one core, whatever
    the degree: a degree leaves it more cores, since it has fewer heads on a GPU.
    """

    form: Form
    split: NDArray[np.float64]
    shared: NDArray[np.float64]
    longest_ms: float
    kv: SplitKv

    def model(self, tensor_parallel: int) -> ParametricStepTime:
        """Return the model at one TP degree."""
        model = self.form.model(self.split / tensor_parallel + self.shared)
        counts = capture_sizes(self.form.graph_tokens).astype(np.float64)
        shares = self.kv.share(counts, np.full(len(counts), float(tensor_parallel)))
        points = zip(counts.tolist(), (self.longest_ms * shares).tolist(), strict=True)
        return replace(model, longest_points=tuple((n, six_digits(ms)) for n, ms in points))


def fit_tensor_parallel(rows: IterationRows, kv: SplitKv | None = None) -> TensorParallelFit:
    """Return the family fitted to rows of at least two TP degrees; UsageError when there is one."""
    kv = kv or SplitKv()
    if len(np.unique(rows.tensor_parallel)) < 2:
        raise UsageError("one TP degree in the rows", expected="two or more, to tell what a degree splits")
    form = Form(_BASE, (0.0,))
    columns = form.columns(rows)
    size = columns.shape[1]
    split = columns / rows.tensor_parallel[:, None]
    split[:, _SHARED] = columns[:, _SHARED]
    _, sequences = padded_rows(rows, form.graph_tokens)
    split[:, _LONGEST] = columns[:, _LONGEST] * kv.share(sequences, rows.tensor_parallel)
    joint = np.concatenate((split, columns[:, _BOTH]), axis=1)
    found = solve(joint, rows, form.floors, form.known_ms(rows)).coefficients
    own, shared = found[:size].copy(), np.zeros(size)
    shared[[*_BOTH]] = found[size:]
    shared[[*_SHARED]] = own[[*_SHARED]]
    own[[*_SHARED, _LONGEST]] = 0.0
    return TensorParallelFit(form, own, shared, float(found[_LONGEST]), kv)
