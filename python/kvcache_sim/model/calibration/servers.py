"""Real servers that ``aiconfigurator-core`` lists, half of them never looked at, against its kernels.

A run is a closed loop of ``concurrency`` clients, 10 × as many prompts, lengths uniform in 0.8 to 1.0 of the
nominal ones. Its TPOT and TTFT are those of the steady state in closed form, not of a simulation.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kvcache_sim.errors import UsageError
from kvcache_sim.model.aiconfigurator.deployment import Deployment, library_model
from kvcache_sim.model.aiconfigurator.kernels import MeasuredKernels, measured_kernels
from kvcache_sim.model.aiconfigurator.library import installed_folder, model_configuration
from kvcache_sim.model.aiconfigurator.names import LABEL_REPAIRS, REPAIRS, Dtypes

_LENGTH_SHARE = 0.9
_BUDGET_TOKENS = 8192
_ENGINES = ("vllm", "sglang")
_HOPPER = ("h100", "h200", "h20")
#: A run that a prediction misses by more than this factor, either way, is listed by its label.
FAR_OFF = 1.6
#: Share of the prompts that come all at once: the first of ten rounds.
KERNELS_TOGETHER = 0.1


@dataclass(frozen=True, slots=True)
class ServerRun:
    """One run: where, under what load, and what was measured, in ms."""

    deployment: Deployment
    label: tuple[str, str, str]
    configuration: str
    prompt_tokens: float
    output_tokens: float
    concurrency: int
    ttft_ms: float
    tpot_ms: float


@dataclass(frozen=True, slots=True)
class Parts:
    """What kernels say of a run, in ms: of its TPOT and of its TTFT.

    A decode step, and the prompts of the others that pass in a token's time; the mean wait where the prompts
    of all clients come at once, and a prompt that comes by itself.
    """

    decode_ms: float
    prompts_ms: float
    together_ms: float
    alone_ms: float


@dataclass(frozen=True, slots=True)
class Predicted:
    """A run with the TPOT and TTFT predicted, in ms, and the parts that kernels have in them."""

    run: ServerRun
    parts: Parts
    ttft_ms: float
    tpot_ms: float


def server_runs(path: Path | None = None) -> tuple[list[ServerRun], int]:
    """Return the distinct runs of the half that may be looked at, and how many distinct runs there are.

    The half: the first byte of the SHA-256 of the configuration is even.
    """
    path = path or installed_folder() / "systems" / "silicon_sample.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["mode"] == "agg" and row["backend"] in _ENGINES]
    told = {"id", "silicon_data_source"}
    distinct = {tuple(value for key, value in row.items() if key not in told): row for row in rows}
    keys = {key: configuration_key(row) for key, row in distinct.items()}
    runs = [_run(row, keys[key]) for key, row in distinct.items() if not first_byte_is_odd(keys[key])]
    return runs, len(distinct)


def configuration_key(row: dict[str, str]) -> str:
    """Return ``backend|model_path|system|precision|isl|osl|tp|pp|dp|moe_tp|moe_ep``, degrees as integers."""
    words = [row[key] for key in ("backend", "model_path", "system", "precision", "isl", "osl")]
    degrees = ("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    return "|".join((*words, *(str(int(float(row[key]))) if row[key] else "" for key in degrees)))


def first_byte_is_odd(key: str) -> bool:
    """Whether a configuration is one of those never looked at."""
    return hashlib.sha256(key.encode()).digest()[0] % 2 == 1


def _run(row: dict[str, str], key: str) -> ServerRun:
    def degree(name: str) -> int:
        return int(float(row[name])) if row[name] else 1

    weights, experts = row["gemm_quant_mode"], row["moe_quant_mode"]
    if row["precision"] == "bf16":
        weights = experts = "bfloat16"
    deployment = Deployment(
        library_model(row["model_path"]),
        row["system"],
        row["backend"],
        tensor_parallel=degree("tp_size"),
        pipeline_parallel=degree("pp_size"),
        data_parallel=degree("attention_dp_size"),
        expert_parallel=degree("moe_ep_size"),
        dtypes=Dtypes(weights, experts),
    )
    told = re.search(r"silicon_concurrency=(\d+)", row["silicon_data_source"])
    return ServerRun(
        deployment,
        (row["backend"], row["backend_version"], row["model_path"]),
        key,
        _LENGTH_SHARE * float(row["isl"]),
        _LENGTH_SHARE * float(row["osl"]),
        int(told[1]) if told else int(float(row["batch_size"])),
        float(row["silicon_ttft_ms"]),
        float(row["silicon_tpot_ms"]),
    )


def predict_servers(runs: Iterable[ServerRun]) -> tuple[list[Predicted], Counter[str]]:
    """Return each run with what kernels alone predict, and the runs that no kernels were found for."""
    of: dict[Deployment, list[ServerRun]] = defaultdict(list)
    for run in runs:
        of[run.deployment].append(run)
    found: list[Predicted] = []
    missing: Counter[str] = Counter()
    for deployment, own in of.items():
        try:
            kernels = _kernels(deployment)
            found += [by_kernels(run, _steady_state(kernels, run)) for run in own]
        except UsageError as error:
            missing[str(error)] += len(own)
    return found, missing


def _kernels(deployment: Deployment) -> MeasuredKernels:
    """Return kernels of the checkpoint's formats, or of the label's where the library has none of these."""
    repairs = (*REPAIRS, *LABEL_REPAIRS)
    formats = checkpoint_dtypes(deployment, model_configuration(deployment.model))
    if formats != deployment.dtypes:
        with contextlib.suppress(UsageError):
            return measured_kernels(replace(deployment, dtypes=formats), repairs)
    return measured_kernels(deployment, repairs)


def checkpoint_dtypes(deployment: Deployment, configuration: dict[str, Any]) -> Dtypes:
    """Return the formats that a run labelled fp8 has by its checkpoint.

    One whose weights are scaled in blocks (``weight_block_size``) has its experts so whatever the label says,
    and on Hopper its other weights too; on Blackwell engines turn their scales into powers of two, which runs
    as weights scaled by tensor do.
    """
    quantization = configuration.get("quantization_config") or {}
    dtypes = deployment.dtypes
    if not quantization.get("weight_block_size"):
        return dtypes
    if dtypes.experts == "fp8":
        dtypes = replace(dtypes, experts="fp8_block")
    if dtypes.weights == "fp8" and deployment.system.startswith(_HOPPER):
        dtypes = replace(dtypes, weights="fp8_block")
    return dtypes


def by_kernels(run: ServerRun, parts: Parts) -> Predicted:
    """Return a run as kernels alone predict it: prompts come by themselves, the first round's at once."""
    ttft = KERNELS_TOGETHER * parts.together_ms + (1 - KERNELS_TOGETHER) * parts.alone_ms
    return Predicted(run, parts, ttft, parts.decode_ms + parts.prompts_ms)


def _steady_state(kernels: MeasuredKernels, run: ServerRun) -> Parts:
    """Return the parts: decode steps of all, each prompt's chunks beside the decodes of the others."""
    clients = max(1, round(run.concurrency / run.deployment.data_parallel))
    kv_each = run.prompt_tokens + run.output_tokens / 2
    chunks = int(np.ceil(run.prompt_tokens / _BUDGET_TOKENS))
    new = round(run.prompt_tokens / chunks)
    ask = [(0, 0, clients, round(clients * kv_each))]
    for chunk in range(chunks):
        ask.append((new, chunk * new, clients - 1, round((clients - 1) * kv_each)))
        ask.append((new, chunk * new, 0, 0))
    ms = kernels.rows(np.array(ask, np.int64)).iter_ms
    decode, beside, alone = float(ms[0]), float(ms[1::2].sum()), float(ms[2::2].sum())
    # While one sequence decodes its answer, every other client's prompt passes once.
    prompts = (clients - 1) * max(beside - chunks * decode, 0.0) / run.output_tokens
    # Those that come at once queue for each other; the others wait for the step that runs.
    busy = min(1.0, clients * beside / max(run.output_tokens * (decode + prompts), 1e-9))
    return Parts(decode, prompts, (clients + 1) / 2 * alone, beside * (1 + busy / 2) + decode / 2)


@dataclass(frozen=True, slots=True)
class ServerErrors:
    """Median and mean of the absolute relative errors in %, of TPOT and TTFT, and how many runs."""

    runs: int
    tpot_median: float
    tpot_mean: float
    ttft_median: float
    ttft_mean: float


def server_errors(predicted: Sequence[Predicted]) -> ServerErrors:
    """Return the errors of predictions."""
    tpot = 100 * np.abs([p.tpot_ms / p.run.tpot_ms - 1 for p in predicted])
    ttft = 100 * np.abs([p.ttft_ms / p.run.ttft_ms - 1 for p in predicted])
    figures = (np.median(tpot), np.mean(tpot), np.median(ttft), np.mean(ttft))
    return ServerErrors(len(predicted), *(float(figure) for figure in figures))


def far_off(predicted: Iterable[Predicted]) -> list[tuple[tuple[str, str, str], str, int, int]]:
    """Return labels with runs whose TPOT is off by more than 1.6 ×: label, system, such runs, all of them."""
    off: Counter[tuple[tuple[str, str, str], str]] = Counter()
    every: Counter[tuple[tuple[str, str, str], str]] = Counter()
    for one in predicted:
        key = (one.run.label, one.run.deployment.system)
        every[key] += 1
        off[key] += not 1 / FAR_OFF <= one.tpot_ms / one.run.tpot_ms <= FAR_OFF
    return [(*key, count, every[key]) for key, count in off.most_common() if count]
