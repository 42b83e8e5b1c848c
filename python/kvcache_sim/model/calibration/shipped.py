"""The packaged sets: each with the train file it is fitted to, made by one function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kvcache_sim.model.calibration.fit import fit_step_time, predict_ms
from kvcache_sim.model.calibration.kernels import Points, read_kernels, with_all_reduces, with_spreads
from kvcache_sim.model.calibration.mixtures import MIXTURE_FILE, MIXTURES, fit_mixture
from kvcache_sim.model.calibration.model_file import Provenance, model_text
from kvcache_sim.model.calibration.rows import (
    IterationRows,
    PhaseError,
    check_train_file,
    held_out,
    phase_errors,
    read_iterations,
)
from kvcache_sim.model.calibration.transfer import fit_tensor_parallel
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.kv_room import kv_room_bytes
from kvcache_sim.model.links import load_links
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.parametric import ParametricStepTime


@dataclass(frozen=True, slots=True)
class ShippedSet:
    """One packaged set: what it times, its train file, and the values that choose its rows there.

    ``links`` names the all-reduces that go with measured kernels of several GPUs: those of the same engine.
    """

    model: str
    gpu: str
    tensor_parallel: int
    file: str
    only: tuple[tuple[str, str], ...]
    links: str = ""

    @property
    def name(self) -> str:
        """The name scenarios use."""
        return f"{self.gpu}-{self.model}-tp{self.tensor_parallel}"


def _composed(gpu: str, model: str, tp: int, file_gpu: str, file_model: str) -> ShippedSet:
    only = (("gpu", file_gpu), ("model", file_model), ("tp", str(tp)))
    return ShippedSet(model, gpu, tp, "iter_composed_a100_h100.csv", only)


def _kernels(gpu: str, model: str, tp: int, file_gpu: str, file_model: str) -> ShippedSet:
    only = (("gpu", file_gpu), ("model", file_model), ("tp", str(tp)))
    return ShippedSet(model, gpu, tp, "kernels_rtx.csv.gz", only, "pcie5-vllm-0.19" if tp > 1 else "")


def _measured(tp: int) -> ShippedSet:
    return ShippedSet("qwen3-32b", "b300", tp, "iter_b300_qwen3_32b.csv", (("tp", str(tp)),))


#: Every packaged set but those of ``TRANSFERRED``.
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

#: TP degrees never measured, from a fit across the degrees of one file.
TRANSFERRED = (ShippedSet("qwen3-32b", "b300", 4, "iter_b300_qwen3_32b.csv", ()),)

_SPREAD_FILE = "attention_skew_rtx.csv.gz"


def shipped_texts(folder: Path) -> Iterator[tuple[str, str, list[PhaseError]]]:
    """Yield each packaged set's name, file text and errors, fitted anew to the train files in ``folder``."""
    for entry in SHIPPED:
        model, errors = fit_shipped(entry, folder)
        how = "composed of measured kernels" if "iter_b300" not in entry.file else "measured iterations"
        yield entry.name, model_text(model, _provenance(entry, how), errors), errors
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
    """Return a set's model, fitted without the rows held out, and its error on those."""
    rows, base = shipped_rows(entry, folder)
    out = held_out(len(rows))
    model = fit_step_time(rows.take(~out), base, load_gpu(entry.gpu).kernels)
    errors = phase_errors(rows.take(out), predict_ms(model, rows.take(out)))
    if entry.file.startswith("kernels"):
        # Unequal lengths were measured at one TP degree a model; α is a ratio, so it serves the others.
        only = {key: value for key, value in entry.only if key != "tp"}
        model = with_spreads(model, _train_path(folder, _SPREAD_FILE), only, _capacity_tokens(entry))
    return model, errors


def shipped_rows(entry: ShippedSet, folder: Path) -> tuple[IterationRows, Points]:
    """Return the iterations that a set is fitted to and judged on, and the base where it was measured."""
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
    room = kv_room_bytes(model, load_gpu(entry.gpu), entry.tensor_parallel)
    return room // model.kv_bytes_per_token_per_gpu(entry.tensor_parallel)


def _train_path(folder: Path, file: str) -> Path:
    check_train_file(file)
    return folder / file


def _provenance(entry: ShippedSet, how: str) -> Provenance:
    return Provenance(entry.model, entry.gpu, entry.tensor_parallel, f"{how}; {entry.file}")
