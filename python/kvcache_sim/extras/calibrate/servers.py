"""Real servers compared with measured kernels: closed loops, their errors, and fitted host costs.

A run is a closed loop of ``concurrency`` clients with 10 × as many prompts. Lengths are uniform in 0.8 to 1.0
of the nominal ones. It is simulated step by step (``closed_loop.py``) with the server's launch settings.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng import stream
from kvcache_sim.extras.calibrate.aiconfigurator.deployment import LABEL_REPAIRS, REPAIRS, Deployment, Dtypes
from kvcache_sim.extras.calibrate.aiconfigurator.kernels import MeasuredKernels, measured_kernels
from kvcache_sim.extras.calibrate.aiconfigurator.library import model_configuration
from kvcache_sim.extras.calibrate.closed_loop import Load, StepTimes, closed_loop
from kvcache_sim.extras.calibrate.rows import scipy_optimize
from kvcache_sim.extras.calibrate.server_runs import ServerRun

_HOPPER = ("h100", "h200", "h20")
#: A run whose prediction is off by more than this factor, up or down, is listed by its label.
FAR_OFF = 1.6
#: Prompts per client, and so the share of prompts that arrive together.
_ROUNDS = 10
FIRST_ROUND = 1 / _ROUNDS
_SHORTEST = 0.8
#: KV lengths that are equal up to this many significant digits are one step.
_KV_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of the kernels' closed loop, in mean ms.

    Of TPOT: decode steps, and prompts in steps. Of TTFT: the first round's, whose prompts arrive together; of
    later prompts the decode steps (also those within their own steps), prompts, and idle time.
    """

    decode_ms: float
    prompts_ms: float
    first_ms: float
    waited_ms: float
    own_ms: float
    idle_ms: float


@dataclass(frozen=True, slots=True)
class Predicted:
    """A run with the TPOT and TTFT predicted, in ms, and the parts of them from kernels."""

    run: ServerRun
    parts: Parts
    ttft_ms: float
    tpot_ms: float


def predict_servers(runs: Iterable[ServerRun]) -> tuple[list[Predicted], Counter[str]]:
    """Return each run with the prediction of kernels alone, and the runs without kernels."""
    of: dict[Deployment, list[ServerRun]] = defaultdict(list)
    for run in runs:
        of[run.deployment].append(run)
    found: list[Predicted] = []
    missing: Counter[str] = Counter()
    for deployment, deployed in of.items():
        try:
            kernels = _kernels(deployment)
            found += [
                by_kernels(run, parts) for run, parts in zip(deployed, _parts(kernels, deployed), strict=True)
            ]
        except UsageError as error:
            missing[str(error)] += len(deployed)
    return found, missing


def _kernels(deployment: Deployment) -> MeasuredKernels:
    """Return kernels of the checkpoint's formats, or of the label's if the library has none of these."""
    repairs = (*REPAIRS, *LABEL_REPAIRS)
    formats = checkpoint_dtypes(deployment, model_configuration(deployment.model))
    if formats != deployment.dtypes:
        with contextlib.suppress(UsageError):
            return measured_kernels(replace(deployment, dtypes=formats), repairs)
    return measured_kernels(deployment, repairs)


def checkpoint_dtypes(deployment: Deployment, configuration: dict[str, Any]) -> Dtypes:
    """Return the checkpoint's formats of a run labeled fp8.

    A checkpoint with weights scaled in blocks (``weight_block_size``) has block-scaled experts whatever the
    label, and on Hopper block-scaled other weights too. On Blackwell engines round the other weights' scales
    to powers of two, which run like weights scaled by tensor.
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
    """Return a run with the prediction of kernels alone."""
    later = parts.waited_ms + parts.own_ms + parts.idle_ms
    ttft = FIRST_ROUND * parts.first_ms + (1 - FIRST_ROUND) * later
    return Predicted(run, parts, ttft, parts.decode_ms + parts.prompts_ms)


def _parts(kernels: MeasuredKernels, runs: Sequence[ServerRun]) -> list[Parts]:
    """Return the parts of runs of one deployment; raises UsageError if the library refuses a step."""
    with kernels.asked() as step_ms:
        known: dict[tuple[int, int, int, int], float] = {}

        def times(new: int, past: int, decodes: int, kv_tokens: int) -> float:
            unit = 10 ** max(len(str(kv_tokens)) - _KV_DIGITS, 0)
            step = (new, past, decodes, kv_tokens // unit * unit)
            if step not in known:
                known[step] = step_ms(*step)
            return known[step]

        return [loop_parts(times, run) for run in runs]


def loop_parts(times: StepTimes, run: ServerRun) -> Parts:
    """Return the parts of one run's closed loop, for one of its identical data-parallel ranks."""
    clients = max(1, round(run.concurrency / run.deployment.data_parallel))
    load = _load(run, clients)
    found = closed_loop(times, run.launch, load)
    waited, prefilled, total = found.waits[clients:].mean(axis=0)
    tokens = np.maximum(np.array(load.outputs) - 1, 1)
    decode, prompts, _ = (found.answers / tokens[:, None]).mean(axis=0)
    first = found.waits[:clients, 2].mean()
    figures = (decode, prompts, first, waited, prefilled, total - waited - prefilled)
    return Parts(*(float(figure) for figure in figures))


def _load(run: ServerRun, clients: int) -> Load:
    count = clients * _ROUNDS
    if run.together:
        return Load(clients, [run.prompt_tokens] * count, [run.output_tokens] * count)
    draw = stream(20261122, "servers.lengths")
    prompts, outputs = (
        draw.integers(int(_SHORTEST * nominal), nominal + 1, count).tolist()
        for nominal in (run.prompt_tokens, run.output_tokens)
    )
    return Load(clients, prompts, outputs)


@dataclass(frozen=True, slots=True)
class ServerErrors:
    """Median and mean of the absolute relative errors of TPOT and TTFT in %, and the number of runs."""

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
    """Return labels with TPOT off by more than 1.6 ×: label, system, number of these runs, number of all."""
    off: Counter[tuple[tuple[str, str, str], str]] = Counter()
    every: Counter[tuple[tuple[str, str, str], str]] = Counter()
    for one in predicted:
        key = (one.run.label, one.run.deployment.system)
        every[key] += 1
        off[key] += not 1 / FAR_OFF <= one.tpot_ms / one.run.tpot_ms <= FAR_OFF
    return [(*key, count, every[key]) for key, count in off.most_common() if count]


#: Fitted factors of TPOT, and their values without any run: decode steps and prompts in steps as the kernels
#: have them, no host time per step, none per client. The last two in units of their usual ms.
_TPOT_UNITS = (5.0, 0.1)
_TPOT_KERNELS = (1.0, 1.0, 0.0, 0.0)
#: The same of TTFT: the first round, later prompts, a constant, per client, and per prompt token.
_TTFT_UNITS = (50.0, 5.0, 0.01)
_TTFT_KERNELS = (1.0, 1.0, 0.0, 0.0, 0.0)
#: Smaller errors count squared, larger ones linearly.
_SMALL_ERROR = 0.01
_FIT_ROUNDS = 25
_LEAST_MS = 0.1


def with_fitted_costs(predicted: Sequence[Predicted]) -> list[Predicted]:
    """Return predictions with the kernels' parts scaled and host costs added, by engine, version and model.

    Non-negative and of least absolute relative error. TPOT's factors are regularized towards the kernels'
    own, TTFT's towards those fitted to all other labels of the engine, which have the same front end; both
    with the weight of one run. Fitted to the label's other configurations: no run is predicted with costs
    that were fitted to it or to a run of its configuration under other load.
    """
    groups: dict[tuple[str, str, str], list[Predicted]] = defaultdict(list)
    for one in predicted:
        groups[one.run.label].append(one)
    fitted: list[Predicted] = []
    for label, labelled in groups.items():
        engine, _, _ = label
        elsewhere = [one for one in predicted if one.run.label[0] == engine and one.run.label != label]
        usual = _ttft_scales(elsewhere, _tpot_scales(elsewhere), _TTFT_KERNELS)
        for configuration in dict.fromkeys(one.run.configuration for one in labelled):
            judged = [one for one in labelled if one.run.configuration == configuration]
            train = [one for one in labelled if one.run.configuration != configuration]
            tpot_scales = _tpot_scales(train)
            fitted += _with_costs(judged, tpot_scales, _ttft_scales(train, tpot_scales, usual))
    return fitted


def _tpot_scales(train: Sequence[Predicted]) -> tuple[float, ...]:
    true_ms = np.array([one.run.tpot_ms for one in train])
    return _drawn(_tpot_parts(train), true_ms, _TPOT_KERNELS) if train else _TPOT_KERNELS


def _ttft_scales(
    train: Sequence[Predicted], tpot_scales: tuple[float, ...], usual: tuple[float, ...]
) -> tuple[float, ...]:
    """Return the scales of TTFT regularized towards the usual ones; without runs the usual ones."""
    if not train:
        return usual
    true_ms = np.array([one.run.ttft_ms for one in train])
    return _drawn(_ttft_parts(train, _tpot_parts(train) @ tpot_scales), true_ms, usual)


def _with_costs(
    judged: Sequence[Predicted], tpot_scales: tuple[float, ...], ttft_scales: tuple[float, ...]
) -> list[Predicted]:
    tpot = _tpot_parts(judged) @ tpot_scales
    ttft = _ttft_parts(judged, tpot) @ ttft_scales
    return [
        replace(one, tpot_ms=max(float(own_tpot), _LEAST_MS), ttft_ms=max(float(own_ttft), _LEAST_MS))
        for one, own_tpot, own_ttft in zip(judged, tpot, ttft, strict=True)
    ]


def _tpot_parts(runs: Sequence[Predicted]) -> NDArray[np.float64]:
    step, client = _TPOT_UNITS
    rows = [(p.parts.decode_ms, p.parts.prompts_ms, step, client * p.run.concurrency) for p in runs]
    return np.array(rows, np.float64)


def _ttft_parts(runs: Sequence[Predicted], tpot_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the parts of TTFT; the decode steps waited for are scaled like TPOT."""
    constant, client, token = _TTFT_UNITS
    rows = [
        (
            FIRST_ROUND * p.parts.first_ms,
            (1 - FIRST_ROUND) * (p.parts.waited_ms * tpot / p.tpot_ms + p.parts.own_ms + p.parts.idle_ms),
            constant,
            client * p.run.concurrency,
            token * p.run.prompt_tokens,
        )
        for p, tpot in zip(runs, tpot_ms, strict=True)
    ]
    return np.array(rows, np.float64)


def _drawn(
    parts: NDArray[np.float64], true_ms: NDArray[np.float64], usual: tuple[float, ...]
) -> tuple[float, ...]:
    """Return the scales ≥ 0 of least absolute relative error, regularized towards the usual ones."""
    nnls = scipy_optimize().nnls
    relative, weight = parts / true_ms[:, None], np.ones(len(true_ms))
    scales = np.array(usual)
    for _ in range(_FIT_ROUNDS):
        rows = np.concatenate((relative * weight[:, None], np.eye(len(usual))))
        scales = nnls(rows, np.concatenate((weight, usual)))[0]
        weight = np.maximum(np.abs(relative @ scales - 1), _SMALL_ERROR) ** -0.5
    return tuple(scales.tolist())
