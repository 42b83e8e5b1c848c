"""Mixtures by parallel topology: one deployment fitted by itself, or a topology from the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from math import log2

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.model.calibration.design import Form, form_apart
from kvcache_sim.model.calibration.fit import Shown, solve
from kvcache_sim.model.calibration.rows import IterationRows
from kvcache_sim.model.parametric import ParametricStepTime

#: Rows of one topology that the family is fitted to, at most: pure decode steps are thinned to so many.
_DECODES_A_TOPOLOGY = 600
#: In the family the longest sequence shows where it exceeds the mean by this factor.
_UNEVENNESS = 2.5
_FAMILY = Form(
    base_knots=(1.0, 128.0, 512.0, 513.0, 1024.0, 2048.0, 4096.0, 8192.0),
    longest_knots=(0.0, 24.0),
    decode_knots=(1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
)


@dataclass(frozen=True, slots=True, order=True)
class Topology:
    """How a mixture is spread: tensor, expert and data parallel degrees.

    The experts lie on all ``tensor · data`` GPUs, split among them whole (EP) or each into parts (EP 1).
    """

    tensor_parallel: int
    expert_parallel: int = 1
    data_parallel: int = 1

    @property
    def suffix(self) -> str:
        """The end of a set's name: ``tp2-ep4-dp2``, without what is 1 but for the TP degree."""
        more = (("ep", self.expert_parallel), ("dp", self.data_parallel))
        return f"tp{self.tensor_parallel}" + "".join(f"-{key}{value}" for key, value in more if value > 1)

    def shares(self) -> tuple[float, ...]:
        """Return what the parts of a step's base are multiplied with, apart from 1/TP.

        One: launches and host work; the part of the experts on a GPU; the exchange between data-parallel
        ranks, once, and again for each doubling of the tensor parallelism that it goes across.
        """
        ranks = self.data_parallel > 1
        gpus = self.tensor_parallel * self.data_parallel
        return (1.0, 1 / gpus, float(ranks), ranks * log2(self.tensor_parallel))


def fit_deployment(rows: IterationRows) -> ParametricStepTime:
    """Return the model of one deployment, with a base of decode steps apart from that of others."""
    form = form_apart(rows)
    return form.model(solve(form.columns(rows), rows, form.floors, form.known_ms(rows)).coefficients)


@dataclass(frozen=True, slots=True)
class TopologyFit:
    """A model family over topologies: what TP splits, and what else the base is made of."""

    split: NDArray[np.float64]
    base: NDArray[np.float64]

    def model(self, topology: Topology) -> ParametricStepTime:
        """Return the model at one topology."""
        coefficients = self.split / topology.tensor_parallel
        coefficients[_base_columns()] += np.array(topology.shares()) @ self.base
        return _FAMILY.model(coefficients)


def fit_topologies(measured: Mapping[Topology, IterationRows]) -> TopologyFit:
    """Return the family fitted to the rows of several topologies."""
    thin = {topology: _thinned(rows) for topology, rows in measured.items()}
    parts = []
    for topology, rows in thin.items():
        columns = _FAMILY.columns(rows)
        base = columns[:, _base_columns()]
        parts.append(np.hstack((columns / topology.tensor_parallel, *(s * base for s in topology.shares()))))
    rows = _joined(thin.values())
    unevenness = rows.decode_max_kv_tokens * rows.decode_sequences > _UNEVENNESS * rows.decode_kv_tokens
    start = Shown(unevenness, np.zeros(len(rows), np.bool_))
    found = solve(np.concatenate(parts), rows, _FAMILY.floors, _FAMILY.known_ms(rows), start).coefficients
    size = parts[0].shape[1] - len(_base_columns()) * len(Topology(1).shares())
    return TopologyFit(found[:size], found[size:].reshape(len(Topology(1).shares()), -1))


def _base_columns() -> NDArray[np.intp]:
    """Return the columns of the two bases; the others are attention and cost a sequence."""
    one = _FAMILY.columns(_EMPTY).shape[1]
    return np.concatenate(
        (np.arange(len(_FAMILY.base_knots)), np.arange(one - len(_FAMILY.decode_knots), one))
    )


def _thinned(rows: IterationRows) -> IterationRows:
    decode = rows.phases()["decode"]
    every = max(1, int(decode.sum()) // _DECODES_A_TOPOLOGY)
    return rows.take(~decode | (decode & (np.cumsum(decode) % every == 0)))


def _joined(several: Iterable[IterationRows]) -> IterationRows:
    parts = list(several)
    return IterationRows(
        **{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(parts[0])}
    )


_EMPTY = IterationRows(*(np.ones(1) for _ in fields(IterationRows)))
