"""Models of unmeasured deployments from measured ones: other TP degrees, other topologies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from math import log2

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.calibrate.design import Floors, Form, form_launched, padded_rows, ramp
from kvcache_sim.extras.calibrate.fit import Shown, predict_ms, solve
from kvcache_sim.extras.calibrate.rows import IterationRows
from kvcache_sim.extras.calibrate.runs import Runs, seen_late
from kvcache_sim.model.catalog import topology_suffix
from kvcache_sim.model.parametric import ParametricStepTime, capture_sizes, padded_tokens, six_digits
from kvcache_sim.model.points import Point

_BASE = (1.0, 32.0, 128.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0)
#: Column indices of the longest sequence's cost, and of the costs per sequence after it, in steps with KV.
_LONGEST = len(_BASE)
_SEQUENCE = (_LONGEST + 3, _LONGEST + 4)
#: Coefficients that a degree splits and shares: a step's fixed cost, and its cost per token above 32 tokens.
_BOTH = (0, *(position for position, knot in enumerate(_BASE) if knot > 32))
#: Coefficients that no degree splits: the additional cost per token of a step of few tokens.
_SHARED = (1, *_SEQUENCE)


@dataclass(frozen=True, slots=True)
class SplitKv:
    """Work distribution of a decode kernel: a sequence's KV heads on one GPU's multiprocessors.

    Each pair of a sequence and a KV head is read by an equal share of the cores, at least one core. The
    defaults are a B300's and those of most models with grouped queries.
    """

    kv_heads: int = 8
    multiprocessors: int = 148

    def share(
        self, sequences: NDArray[np.float64], tensor_parallel: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the share of its longest sequence that one core reads; above 1 pairs are read in turns."""
        heads = np.maximum(self.kv_heads / tensor_parallel, 1)
        turns = np.maximum(sequences, 1) * heads / self.multiprocessors
        return np.where(turns > 1, turns, 1 / np.floor(1 / np.minimum(turns, 1.0)))


@dataclass(frozen=True, slots=True)
class TensorParallelFit:
    """A model family over TP degrees: a coefficient is ``shared + split / tp``.

    Weights, attention and GEMMs are split; latency, host work, communication and the sampler's cost per
    sequence
    are not. The longest sequence alone takes ``longest_ms`` per thousand tokens on one core, whatever the
    degree:
    a higher degree leaves it more cores, since a GPU has fewer heads.
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
        return replace(model, longest_points=tuple(Point(n, six_digits(ms)) for n, ms in points))


def fit_tensor_parallel(rows: IterationRows) -> TensorParallelFit:
    """Return the family fitted to rows of at least two TP degrees; UsageError if there is only one."""
    kv = SplitKv()
    if len(np.unique(rows.tensor_parallel)) < 2:
        raise UsageError(
            "one TP degree in the rows", expected="two or more, to separate split and shared costs"
        )
    form = Form(_BASE, (0.0,))
    columns = form.columns(rows)
    size = columns.shape[1]
    split = columns / rows.tensor_parallel[:, None]
    split[:, _SHARED] = columns[:, _SHARED]
    _, sequences = padded_rows(rows, form.graph_tokens)
    split[:, _LONGEST] = columns[:, _LONGEST] * kv.share(sequences, rows.tensor_parallel)
    joint = np.concatenate((split, columns[:, _BOTH]), axis=1)
    found = solve(joint, rows, form.floors, form.known_ms(rows)).coefficients
    split_costs, shared = found[:size].copy(), np.zeros(size)
    shared[[*_BOTH]] = found[size:]
    shared[[*_SHARED]] = split_costs[[*_SHARED]]
    split_costs[[*_SHARED, _LONGEST]] = 0.0
    return TensorParallelFit(form, split_costs, shared, float(found[_LONGEST]), kv)


#: Most rows of one topology that the family is fitted to: pure decode steps are thinned to this number.
_DECODES_A_TOPOLOGY = 300
#: In the family the longest sequence is visible if it exceeds the mean by this factor, and a step without a
#: graph takes at first as long as its launch below this number of tokens.
_UNEVENNESS = 2.5
_LAUNCHED_BELOW = 4000
_FAMILY = Form(
    base_knots=(),
    longest_knots=(0.0, 24.0),
    decode_knots=(1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0),
    launched=True,
)
#: The shares of ``Topology.shares`` that a cost of the form has: those of the base of chunk steps, in its
#: order, of decode steps of one sequence, and of more; all others are split. A launch takes longer where more
#: GPUs wait for each other, and where ranks exchange tokens. The exchange of decode steps does not depend on
#: their sequences: they are few.
_LAUNCH = ("once", "ranks", "ranks_of_several", "doublings")
_KERNELS = ("split", "once", "ranks")
_CHUNK = (_LAUNCH, ("split",), _LAUNCH, _KERNELS, _KERNELS)
_DECODE = ("split", "once", "experts", "ranks", "crossed", "others")
_RISE = _DECODE[:3]


@dataclass(frozen=True, slots=True, order=True)
class Topology:
    """Parallelism of a mixture: tensor, expert and data parallel degrees.

    The experts lie on all ``tensor · data`` GPUs, distributed whole (EP) or each split into parts (EP 1).
    """

    tensor_parallel: int
    expert_parallel: int = 1
    data_parallel: int = 1

    @property
    def suffix(self) -> str:
        """The suffix of a set's name: ``tp2-ep4-dp2``, without degrees of 1 except the TP degree."""
        return topology_suffix(self.tensor_parallel, self.expert_parallel, self.data_parallel)

    def shares(self) -> dict[str, float]:
        """Return the factors of a step's costs in this topology.

        Of what TP splits; what each step has once; the experts on a GPU; the exchange between data-parallel
        ranks: once, again if a rank has several GPUs, again for each doubling of these, and again for each
        other rank; the waits of GPUs for each other, for each doubling of all.
        """
        degree, ranks = self.tensor_parallel, float(self.data_parallel > 1)
        gpus = degree * self.data_parallel
        return {
            "split": 1 / degree,
            "once": 1.0,
            "experts": 1 / gpus,
            "ranks": ranks,
            "ranks_of_several": ranks * (degree > 1),
            "crossed": ranks * log2(degree),
            "others": self.data_parallel - 1.0,
            "doublings": log2(gpus),
        }


def fit_deployment(rows: IterationRows, runs: Runs | None = None) -> ParametricStepTime:
    """Return the model of one deployment, with separate bases of decode steps and of other steps.

    With ``runs``, their sums are fitted instead of single rows.
    """
    form = form_launched(rows)
    found = solve(form.columns(rows), rows, form.floors, form.known_ms(rows), runs=runs)
    return form.model(found.coefficients)


@dataclass(frozen=True, slots=True)
class TopologyFit:
    """A model family over topologies: the coefficients of its form for each of ``Topology.shares``."""

    costs: Mapping[str, NDArray[np.float64]]

    def model(self, topology: Topology) -> ParametricStepTime:
        """Return the model at one topology.

        Its decode base has the family's knots, and knots where the total sequences of all ranks reach one of
        them, since the experts receive all these sequences, assumed equally many per rank.
        """
        shares = topology.shares()
        coefficients = np.sum([shares[name] * costs for name, costs in self.costs.items()], axis=0)
        knots = np.array(_FAMILY.decode_knots)
        gathered = knots / topology.data_parallel
        form = replace(
            _FAMILY, decode_knots=tuple(sorted({*knots.tolist(), *gathered[gathered > 1].tolist()}))
        )
        others = len(coefficients) - len(knots)
        experts = self.costs["experts"][others:] * shares["experts"]
        n = np.array(form.decode_knots)
        ms = ramp(n, _FAMILY.decode_knots, extrapolates=True) @ (coefficients[others:] - experts)
        ms += ramp(n * topology.data_parallel, _FAMILY.decode_knots, extrapolates=True) @ experts
        return form.model(np.concatenate((coefficients[:others], np.diff(ms, prepend=0.0))))


def fit_topologies(measured: Mapping[Topology, IterationRows]) -> TopologyFit:
    """Return the family fitted to the rows of several topologies.

    Of a topology whose steps are seen late only pure decode steps are used.
    """
    thin = {topology: _thinned(rows) for topology, rows in measured.items()}
    parts = [_columns(topology, rows) for topology, rows in thin.items()]
    rows, costs = _joined(thin.values()), _costs()
    unevenness = rows.decode_max_kv_tokens * rows.decode_sequences > _UNEVENNESS * rows.decode_kv_tokens
    launched = rows.prefill_tokens + rows.decode_sequences < _LAUNCHED_BELOW
    start = Shown(unevenness, np.zeros(len(rows), np.bool_), launched)
    column = np.array([at for _, at in costs])
    floors = Floors(*(np.flatnonzero(np.isin(column, part)) for part in _FAMILY.floors.parts))
    found = solve(np.concatenate(parts), rows, floors, _FAMILY.known_ms(rows), start).coefficients
    family = {name: np.zeros(column.max() + 1) for name in Topology(1).shares()}
    for (name, at), value in zip(costs, found.tolist(), strict=True):
        family[name][at] = value
    return TopologyFit(family)


def of_sibling(
    measured: Mapping[Topology, IterationRows], known: Iterable[Topology], sibling: TopologyFit
) -> dict[Topology, IterationRows]:
    """Return the rows of all ``known`` topologies of a model that was measured in few of them.

    A row of another topology takes as much longer or shorter as in a sibling, the family of another model.
    """
    thin = {topology: _thinned(rows) for topology, rows in measured.items()}
    ms = {topology: predict_ms(sibling.model(topology), rows) for topology, rows in thin.items()}
    return thin | {
        topology: _joined(
            replace(
                rows, iter_ms=rows.iter_ms * predict_ms(sibling.model(topology), rows) / ms[known_topology]
            )
            for known_topology, rows in thin.items()
        )
        for topology in known
        if topology not in measured
    }


def _costs() -> list[tuple[str, int]]:
    """Return the pairs of a share and a column of the form that has it."""
    columns, rises = _FAMILY.columns(_EMPTY).shape[1], len(_FAMILY.decode_knots) - 1
    attention = columns - len(_CHUNK) - 1 - rises
    shares = (*_CHUNK, *([("split",)] * attention), _DECODE, *([_RISE] * rises))
    return [(name, at) for at, names in enumerate(shares) for name in names]


def _columns(topology: Topology, rows: IterationRows) -> NDArray[np.float64]:
    """Return the form's columns times each share; the experts receive the padded sequences of all ranks."""
    padded = padded_tokens(_FAMILY.graph_tokens, int(rows.decode_sequences.max(initial=1)))
    sequences = padded[rows.decode_sequences.astype(np.intp)] * topology.data_parallel
    everyone = replace(rows, decode_sequences=np.asarray(sequences, np.float64))
    of_rank, gathered = _FAMILY.columns(rows), _FAMILY.columns(everyone)
    shares = topology.shares()
    columns = [(gathered if name == "experts" else of_rank)[:, at] * shares[name] for name, at in _costs()]
    return np.stack(columns, axis=1)


def _thinned(rows: IterationRows) -> IterationRows:
    decode = rows.phases()["decode"]
    if seen_late(rows):
        rows, decode = rows.take(decode), decode[decode]
    every = max(1, int(decode.sum()) // _DECODES_A_TOPOLOGY)
    return rows.take(~decode | (decode & (np.cumsum(decode) % every == 0)))


def _joined(several: Iterable[IterationRows]) -> IterationRows:
    parts = list(several)
    return IterationRows(
        **{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(parts[0])}
    )


_EMPTY = IterationRows(*(np.ones(1) for _ in fields(IterationRows)))
