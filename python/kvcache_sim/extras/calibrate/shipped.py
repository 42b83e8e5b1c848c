"""The packaged sets: each with its train file, all fitted by one function.

Sets of mixtures of experts: two models in twelve topologies of a B300 machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.extras.calibrate.command import Measured, fit_rows
from kvcache_sim.extras.calibrate.fit import fit_step_time, predict_ms
from kvcache_sim.extras.calibrate.kernels import read_kernels, with_all_reduces, with_spreads
from kvcache_sim.extras.calibrate.rows import (
    IterationRows,
    check_train_file,
    held_out,
    held_out_blocks,
    phase_errors,
    read_iterations,
)
from kvcache_sim.extras.calibrate.runs import compiles, runs_of, seen_late, single_steps, waits
from kvcache_sim.extras.calibrate.transfer import Topology, fit_deployment, fit_tensor_parallel
from kvcache_sim.extras.calibrate.unsplit_kv import with_unsplit_kv
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.kv_capacity import kv_capacity_bytes
from kvcache_sim.model.links import load_links
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.parametric import ParametricStepTime
from kvcache_sim.model.points import Points
from kvcache_sim.model.step_time_file import PhaseError, Provenance, model_text

MIXTURE_FILE = "iter_b300_moe.csv.gz"
#: Share of rows held out individually; the blocks held out in addition make it a fifth.
_ROWS_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Mixture:
    """One packaged set: kvsim's name of the model, the file's name, and the topology."""

    model: str
    file_model: str
    topology: Topology
    gpu: str = "b300"

    @property
    def name(self) -> str:
        """The set's name in scenarios."""
        return f"{self.gpu}-{self.model}-{self.topology.suffix}"

    @property
    def only(self) -> dict[str, str]:
        """The values that select the set's rows in the file."""
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
    """A set's file text, and its errors on single held-out rows, on blocks, and on blocks without waits.

    ``dropped`` rows compile and are neither fitted nor evaluated; ``waiting`` rows are both.
    """

    text: str
    errors: list[PhaseError]
    block_errors: list[PhaseError]
    own_time_errors: list[PhaseError]
    dropped: int
    waiting: int


def mixture_rows(mixture: Mixture, path: Path) -> tuple[IterationRows, int]:
    """Return the iterations of a set without compilation rows, and the number of compilation rows."""
    rows = read_iterations(path, mixture.only)
    dropped = compiles(rows)
    return rows.take(~dropped), int(dropped.sum())


def fit_mixture(mixture: Mixture, path: Path) -> FittedMixture:
    """Return the fit to four fifths of a set's rows: a tenth is held out by row, a tenth in blocks.

    If its steps are observed late, runs of steps replace rows.
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


@dataclass(frozen=True, slots=True)
class ShippedSet:
    """One packaged set: its name's parts, its train file, and the values that select its rows there.

    ``links`` names the all-reduces of the same engine for measured kernels of several GPUs.
    """

    model: str
    gpu: str
    tensor_parallel: int
    file: str
    only: tuple[tuple[str, str], ...]
    links: str = ""

    @property
    def name(self) -> str:
        """The set's name in scenarios."""
        return f"{self.gpu}-{self.model}-tp{self.tensor_parallel}"


def _composed(gpu: str, model: str, tp: int, file_gpu: str, file_model: str) -> ShippedSet:
    only = (("gpu", file_gpu), ("model", file_model), ("tp", str(tp)))
    return ShippedSet(model, gpu, tp, "iter_composed_a100_h100.csv", only)


def _kernels(gpu: str, model: str, tp: int, file_gpu: str, file_model: str) -> ShippedSet:
    only = (("gpu", file_gpu), ("model", file_model), ("tp", str(tp)))
    return ShippedSet(model, gpu, tp, "kernels_rtx.csv.gz", only, "pcie5-vllm-0.19" if tp > 1 else "")


def _measured(tp: int) -> ShippedSet:
    return ShippedSet("qwen3-32b", "b300", tp, "iter_b300_qwen3_32b.csv", (("tp", str(tp)),))


#: Every packaged set but those of ``SWEPT`` and ``TRANSFERRED``.
SHIPPED = (
    _composed("a100", "llama-3-8b", 1, "A100-SXM-80GB", "Llama-3-8B"),
    _composed("a100", "llama-3-70b", 4, "A100-SXM-80GB", "Llama-3-70B"),
    _composed("h100", "llama-3-8b", 1, "H100-SXM-80GB", "Llama-3-8B"),
    _composed("h100", "llama-3-70b", 4, "H100-SXM-80GB", "Llama-3-70B"),
    _composed("h100", "qwen3-32b", 2, "H100-SXM-80GB", "Qwen3-32B"),
    _kernels("rtx4090", "llama-3.1-8b", 1, "RTX4090", "Llama-3.1-8B"),
    _kernels("rtx-pro-6000", "llama-3.1-8b", 1, "RTXPRO6000", "Llama-3.1-8B"),
    _kernels("rtx-pro-6000", "llama-3.1-8b", 2, "RTXPRO6000", "Llama-3.1-8B"),
    _kernels("rtx-pro-6000", "qwen3-32b", 1, "RTXPRO6000", "Qwen3-32B"),
    _kernels("rtx-pro-6000", "qwen3-32b", 2, "RTXPRO6000", "Qwen3-32B"),
    _measured(1),
    _measured(2),
    _measured(8),
)

#: TP degrees that were not measured, from a fit across the degrees of one file.
TRANSFERRED = (ShippedSet("qwen3-32b", "b300", 4, "iter_b300_qwen3_32b.csv", ()),)

#: Sets of a sweep over batches, of `benches/measured`: a machine's own iterations, by the sums of their runs.
SWEPT = (
    ShippedSet("llama-3.1-8b", "h100", 1, "h100-llama-3.1-8b-iterations.csv.gz", (("segment", "sweep"),)),
)

_SPREAD_FILE = "attention_skew_rtx.csv.gz"


def shipped_texts(folder: Path) -> Iterator[tuple[str, str, list[PhaseError]]]:
    """Yield each packaged set's name, file text and errors, fitted to the train files in ``folder``."""
    for entry in SHIPPED:
        model, errors = fit_shipped(entry, folder)
        how = "composed of measured kernels" if "iter_b300" not in entry.file else "measured iterations"
        yield entry.name, model_text(model, _provenance(entry, how), errors), errors
    for entry in SWEPT:
        file = _train_path(folder, entry.file)
        swept = fit_rows(Measured(file, dict(entry.only), entry.model, entry.gpu), entry.tensor_parallel)
        errors = phase_errors(*swept.judged())
        how = f"measured iterations of a sweep on one machine (vLLM 0.25.1), {swept.how}"
        yield entry.name, model_text(swept.model, _provenance(entry, how), errors), errors
    for entry in TRANSFERRED:
        rows = read_iterations(_train_path(folder, entry.file))
        kept = rows.take(~held_out(len(rows)))
        model = fit_tensor_parallel(kept).model(entry.tensor_parallel)
        degrees = ", ".join(f"{tp:g}" for tp in np.unique(rows.tensor_parallel))
        yield entry.name, model_text(model, _provenance(entry, f"transferred from TP {degrees}"), []), []
    for mixture in MIXTURES:
        fitted = fit_mixture(mixture, _train_path(folder, MIXTURE_FILE))
        yield mixture.name, fitted.text, fitted.errors


def fit_shipped(entry: ShippedSet, folder: Path) -> tuple[ParametricStepTime, list[PhaseError]]:
    """Return a set's model, fitted without the held-out rows, and its error on these."""
    rows, base = shipped_rows(entry, folder)
    out = held_out(len(rows))
    model = fit_step_time(rows.take(~out), base, load_gpu(entry.gpu).kernels)
    errors = phase_errors(rows.take(out), predict_ms(model, rows.take(out)))
    if entry.file.startswith("kernels"):
        # Chunk steps of unequal lengths were measured at one TP degree per model; α is a ratio, so it applies
        # to the others.
        only = {key: value for key, value in entry.only if key != "tp"}
        model = with_unsplit_kv(model, load_model(entry.model), entry.gpu, entry.tensor_parallel)
        model = with_spreads(model, _train_path(folder, _SPREAD_FILE), only, _capacity_tokens(entry))
    return model, errors


def shipped_rows(entry: ShippedSet, folder: Path) -> tuple[IterationRows, Points]:
    """Return the iterations that a set is fitted to and evaluated on, and the base if it was measured."""
    path = _train_path(folder, entry.file)
    if not entry.file.startswith("kernels"):
        return read_iterations(path, dict(entry.only)), ()
    model = load_model(entry.model)
    kernels = read_kernels(path, model, dict(entry.only))
    links = load_links(entry.links) if entry.links else None
    kernels = with_all_reduces(kernels, model, load_gpu(entry.gpu), entry.tensor_parallel, links)
    return kernels.iterations(_capacity_tokens(entry)), kernels.base_points()


def _capacity_tokens(entry: ShippedSet) -> int:
    model = load_model(entry.model)
    free_bytes = kv_capacity_bytes(model, load_gpu(entry.gpu), entry.tensor_parallel)
    return free_bytes // model.kv_bytes_per_token_per_gpu(entry.tensor_parallel)


def _train_path(folder: Path, file: str) -> Path:
    check_train_file(file)
    return folder / file


def _provenance(entry: ShippedSet, how: str) -> Provenance:
    return Provenance(entry.model, entry.gpu, entry.tensor_parallel, f"{how}; {entry.file}")
