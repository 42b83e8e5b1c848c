"""Models of unmeasured deployments from measured ones: other TP degrees, other topologies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import log2

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import UsageError
from kvcache_sim.model.calibration.design import Form, form_apart, padded_rows, ramp
from kvcache_sim.model.calibration.fit import Shown, solve
from kvcache_sim.model.calibration.rows import IterationRows
from kvcache_sim.model.calibration.runs import Runs
from kvcache_sim.model.catalog import topology_suffix
from kvcache_sim.model.parametric import ParametricStepTime, capture_sizes, padded_tokens, six_digits

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
        return replace(model, longest_points=tuple((n, six_digits(ms)) for n, ms in points))


def fit_tensor_parallel(rows: IterationRows, kv: SplitKv | None = None) -> TensorParallelFit:
    """Return the family fitted to rows of at least two TP degrees; UsageError if there is only one."""
    kv = kv or SplitKv()
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
    own, shared = found[:size].copy(), np.zeros(size)
    shared[[*_BOTH]] = found[size:]
    shared[[*_SHARED]] = own[[*_SHARED]]
    own[[*_SHARED, _LONGEST]] = 0.0
    return TensorParallelFit(form, own, shared, float(found[_LONGEST]), kv)


#: Most rows of one topology that the family is fitted to: pure decode steps are thinned to this number.
_DECODES_A_TOPOLOGY = 300
#: In the family the longest sequence is visible if it exceeds the mean by this factor.
_UNEVENNESS = 2.5
_FAMILY = Form(
    base_knots=(1.0, 128.0, 512.0, 513.0, 1024.0, 2048.0, 4096.0, 8192.0),
    longest_knots=(0.0, 24.0),
    decode_knots=(1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0),
)
#: Index of the experts among ``Topology.shares``. In a decode step the sequences of all ranks, assumed
#: equally many per rank, reach the experts together: this part of the base depends on all of them. The parts
#: after it, of the exchange, do not depend on the number of sequences: with so few tokens its time is
#: constant.
_EXPERTS = 1


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

    def shares(self) -> tuple[float, ...]:
        """Return the factors of the parts of a step's base, apart from 1/TP.

        In order: launches and host work; the part of the experts on a GPU; the exchange between data-parallel
        ranks:
        once, again for each doubling of the tensor parallelism that it crosses, and again for each other
        rank.
        """
        ranks = self.data_parallel > 1
        gpus = self.tensor_parallel * self.data_parallel
        return (1.0, 1 / gpus, float(ranks), ranks * log2(self.tensor_parallel), self.data_parallel - 1.0)


def nearest_topology(alike: Sequence[Topology], wanted: Topology) -> Topology:
    """Return the topology of the nearest TP degree; of two degrees as near the larger has fewer waits."""

    def distance(topology: Topology) -> tuple[float, int]:
        degree = topology.tensor_parallel
        return abs(log2(degree / wanted.tensor_parallel)), -degree

    return min(alike, key=distance)


def joined(decode: ParametricStepTime, chunk: ParametricStepTime) -> ParametricStepTime:
    """Return the pure decode steps of one model with the chunk steps of another."""
    return replace(
        chunk,
        decode_points=decode.decode_points,
        longest_points=decode.longest_points,
        kv_ms_per_thousand=decode.kv_ms_per_thousand,
        sequence_ms=decode.sequence_ms,
        least_kv_tokens=decode.least_kv_tokens,
    )


def fit_deployment(rows: IterationRows, runs: Runs | None = None) -> ParametricStepTime:
    """Return the model of one deployment, with separate bases of decode steps and of other steps.

    With ``runs``, their sums are fitted instead of single rows.
    """
    form = form_apart(rows)
    found = solve(form.columns(rows), rows, form.floors, form.known_ms(rows), runs=runs)
    return form.model(found.coefficients)


@dataclass(frozen=True, slots=True)
class TopologyFit:
    """A model family over topologies: the costs that TP splits, and the shared parts of the base."""

    split: NDArray[np.float64]
    base: NDArray[np.float64]

    def model(self, topology: Topology) -> ParametricStepTime:
        """Return the model at one topology.

        Its decode base has the family's knots, and knots where the total sequences of all ranks reach one of
        them, since the experts receive all these sequences.
        """
        coefficients = self.split / topology.tensor_parallel
        coefficients[_base_columns()] += np.array(topology.shares()) @ self.base
        knots = np.array(_FAMILY.decode_knots)
        gathered = knots / topology.data_parallel
        form = replace(
            _FAMILY, decode_knots=tuple(sorted({*knots.tolist(), *gathered[gathered > 1].tolist()}))
        )
        own = len(coefficients) - len(knots)
        experts = self.base[_EXPERTS, len(_FAMILY.base_knots) :] * topology.shares()[_EXPERTS]
        n = np.array(form.decode_knots)
        ms = ramp(n, _FAMILY.decode_knots, extrapolates=True) @ (coefficients[own:] - experts)
        ms += ramp(n * topology.data_parallel, _FAMILY.decode_knots, extrapolates=True) @ experts
        return form.model(np.concatenate((coefficients[:own], np.diff(ms, prepend=0.0))))


def fit_topologies(measured: Mapping[Topology, IterationRows]) -> TopologyFit:
    """Return the family fitted to the rows of several topologies."""
    thin = {topology: _thinned(rows) for topology, rows in measured.items()}
    parts = [_columns(topology, rows) for topology, rows in thin.items()]
    rows = _joined(thin.values())
    unevenness = rows.decode_max_kv_tokens * rows.decode_sequences > _UNEVENNESS * rows.decode_kv_tokens
    start = Shown(unevenness, np.zeros(len(rows), np.bool_))
    found = solve(np.concatenate(parts), rows, _FAMILY.floors, _FAMILY.known_ms(rows), start).coefficients
    used = _shared_columns()
    size = len(found) - int(used.sum())
    base = np.zeros(len(used))
    base[used] = found[size:]
    return TopologyFit(found[:size], base.reshape(len(Topology(1).shares()), -1))


def _shared_columns() -> NDArray[np.bool_]:
    """Return the existing columns of each share's bases: the exchange does not rise with sequences."""
    used = np.ones((len(Topology(1).shares()), len(_base_columns())), np.bool_)
    used[_EXPERTS + 1 :, len(_FAMILY.base_knots) + 1 :] = False
    return used.ravel()


def _columns(topology: Topology, rows: IterationRows) -> NDArray[np.float64]:
    """Return the columns that TP splits, then each share of the two bases."""
    columns, base, own = _FAMILY.columns(rows), _base_columns(), len(_FAMILY.base_knots)
    shared = [share * columns[:, base] for share in topology.shares()]
    padded = padded_tokens(_FAMILY.graph_tokens, int(rows.decode_sequences.max(initial=1)))
    sequences = padded[rows.decode_sequences.astype(np.intp)] * topology.data_parallel
    everyone = replace(rows, decode_sequences=np.asarray(sequences, np.float64))
    share = topology.shares()[_EXPERTS]
    shared[_EXPERTS][:, own:] = share * _FAMILY.columns(everyone)[:, base[own:]]
    return np.hstack((columns / topology.tensor_parallel, np.hstack(shared)[:, _shared_columns()]))


def _base_columns() -> NDArray[np.intp]:
    """Return the columns of the two bases; the other columns are attention and cost per sequence."""
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
