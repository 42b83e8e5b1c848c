"""The packaged sets of measured mixtures of experts: two models in twelve topologies of a B300 machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.model.calibration.fit import predict_ms
from kvcache_sim.model.calibration.model_file import Provenance, model_text
from kvcache_sim.model.calibration.rows import (
    IterationRows,
    PhaseError,
    held_out,
    held_out_blocks,
    phase_errors,
    read_iterations,
)
from kvcache_sim.model.calibration.runs import compiles, runs_of, seen_late, single_steps, waits
from kvcache_sim.model.calibration.transfer import Topology, fit_deployment

MIXTURE_FILE = "iter_b300_moe.csv.gz"
#: Rows held out one by one; the stretches held out besides make it a fifth.
_ROWS_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Mixture:
    """One packaged set: our name of the model, the file's, and the topology."""

    model: str
    file_model: str
    topology: Topology
    gpu: str = "b300"

    @property
    def name(self) -> str:
        """The name scenarios use."""
        return f"{self.gpu}-{self.model}-{self.topology.suffix}"

    @property
    def only(self) -> dict[str, str]:
        """The values that choose the set's rows in the file."""
        degrees = self.topology
        return {
            "model": self.file_model,
            "tp": str(degrees.tensor_parallel),
            "ep": str(degrees.expert_parallel),
            "dp": str(degrees.data_parallel),
        }


_QWEN_TOPOLOGIES = (
    Topology(1),
    Topology(1, 2, 2),
    Topology(1, 4, 4),
    Topology(1, 8, 8),
    Topology(2),
    Topology(2, 2),
    Topology(2, 4, 2),
    Topology(4),
    Topology(4, 8, 2),
    Topology(8, 8),
)
#: Every packaged set of a mixture.
MIXTURES = (
    *(Mixture("qwen3.6-35b-a3b", "Qwen3.6-35B-A3B", topology) for topology in _QWEN_TOPOLOGIES),
    Mixture("deepseek-v4-flash", "DeepSeek-V4-Flash", Topology(1, 4, 4)),
    Mixture("deepseek-v4-flash", "DeepSeek-V4-Flash", Topology(4, 4)),
)


@dataclass(frozen=True, slots=True)
class FittedMixture:
    """A set's file text, and its errors on single rows held out, on stretches, and on these without waits.

    ``dropped`` rows compile and are neither fitted nor judged; ``waiting`` ones are both.
    """

    text: str
    errors: list[PhaseError]
    block_errors: list[PhaseError]
    own_time_errors: list[PhaseError]
    dropped: int
    waiting: int


def mixture_rows(mixture: Mixture, path: Path) -> tuple[IterationRows, int]:
    """Return the iterations of a set without those that compile, and how many these are."""
    rows = read_iterations(path, mixture.only)
    dropped = compiles(rows)
    return rows.take(~dropped), int(dropped.sum())


def fit_mixture(mixture: Mixture, path: Path) -> FittedMixture:
    """Return the fit to four fifths of a set's rows: a tenth is held out by row, a tenth in stretches.

    Where its steps are seen late, runs of steps take the place of rows.
    """
    rows, dropped = mixture_rows(mixture, path)
    late = seen_late(rows)
    runs = runs_of(rows) if late else single_steps(rows)
    in_blocks = held_out_blocks(len(rows))[runs.begins]
    single = held_out(len(rows), _ROWS_SHARE)[runs.begins] & ~in_blocks
    fitted = ~in_blocks & ~single
    model = fit_deployment(rows.take(runs.mask(fitted)), runs.take(fitted))
    totals, alone = runs.totals(rows), ~waits(rows)[runs.begins]
    errors, block_errors, own_time_errors = (
        _errors(totals, model_ms, chosen)
        for model_ms in (runs.sums(predict_ms(model, rows)),)
        for chosen in (single, in_blocks, in_blocks & (alone | (totals.prefill_tokens > 0)))
    )
    topology = mixture.topology
    how = "measured iterations of one rank" + (", seen late, by sums of runs" if late else "")
    provenance = Provenance(
        mixture.model,
        mixture.gpu,
        topology.tensor_parallel,
        f"{how}, {dropped} of compilation left out; {MIXTURE_FILE}",
        topology.expert_parallel,
        topology.data_parallel,
    )
    text = model_text(model, provenance, errors, block_errors)
    return FittedMixture(text, errors, block_errors, own_time_errors, dropped, int(waits(rows).sum()))


def _errors(
    rows: IterationRows, model_ms: NDArray[np.float64], chosen: NDArray[np.bool_]
) -> list[PhaseError]:
    return phase_errors(rows.take(chosen), model_ms[chosen])
