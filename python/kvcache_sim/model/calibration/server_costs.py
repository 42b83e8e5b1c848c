"""Host and first-token costs of real servers, and how far their kernels' parts are off, by label."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import UsageError
from kvcache_sim.model.calibration.servers import FIRST_ROUND, Predicted

#: What is fitted of TPOT, and what holds without any run: decode steps and prompts in steps as the kernels
#: have them, no host time a step, none a client. The last two in units of ms that they usually have.
_TPOT_UNITS = (5.0, 0.1)
_TPOT_KERNELS = (1.0, 1.0, 0.0, 0.0)
#: The same of TTFT: the first round, later prompts, a constant, one a client, and one a prompt token.
_TTFT_UNITS = (50.0, 5.0, 0.01)
_TTFT_KERNELS = (1.0, 1.0, 0.0, 0.0, 0.0)
#: Errors below this count squared, larger ones by their size.
_SMALL_ERROR = 0.01
_ROUNDS = 25
_LEAST_MS = 0.1


def with_fitted_costs(predicted: Sequence[Predicted]) -> list[Predicted]:
    """Return predictions with the kernels' parts scaled and host costs added, by engine, version and model.

    Non-negative and of least absolute relative error. TPOT's are drawn towards the kernels as they are,
    TTFT's towards those fitted to all other labels of the engine, whose front end is theirs too; either with
    the weight of one run. Fitted to the label's other configurations: no run is predicted by costs that it,
    or a run of its configuration under other load, was fitted to.
    """
    groups: dict[tuple[str, str, str], list[Predicted]] = defaultdict(list)
    for one in predicted:
        groups[one.run.label].append(one)
    fitted: list[Predicted] = []
    for label, own in groups.items():
        engine, _, _ = label
        elsewhere = [one for one in predicted if one.run.label[0] == engine and one.run.label != label]
        usual = _ttft_scales(elsewhere, _tpot_scales(elsewhere), _TTFT_KERNELS)
        for configuration in dict.fromkeys(one.run.configuration for one in own):
            judged = [one for one in own if one.run.configuration == configuration]
            train = [one for one in own if one.run.configuration != configuration]
            tpot_scales = _tpot_scales(train)
            fitted += _with_costs(judged, tpot_scales, _ttft_scales(train, tpot_scales, usual))
    return fitted


def _tpot_scales(train: Sequence[Predicted]) -> tuple[float, ...]:
    true_ms = np.array([one.run.tpot_ms for one in train])
    return _drawn(_tpot_parts(train), true_ms, _TPOT_KERNELS) if train else _TPOT_KERNELS


def _ttft_scales(
    train: Sequence[Predicted], tpot_scales: tuple[float, ...], usual: tuple[float, ...]
) -> tuple[float, ...]:
    """Return the scales of TTFT drawn towards the usual ones; without runs these."""
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
    """Return the parts of TTFT; decode steps that were waited for take as much longer as TPOT does."""
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
    """Return the scales ≥ 0 of least absolute relative error, drawn towards the usual ones."""
    try:
        from scipy.optimize import nnls
    except ModuleNotFoundError:
        raise UsageError("fitting needs scipy", hint="pip install 'kvcache-sim[calibrate]'") from None

    relative, weight = parts / true_ms[:, None], np.ones(len(true_ms))
    scales = np.array(usual)
    for _ in range(_ROUNDS):
        rows = np.concatenate((relative * weight[:, None], np.eye(len(usual))))
        scales = nnls(rows, np.concatenate((weight, usual)))[0]
        weight = np.maximum(np.abs(relative @ scales - 1), _SMALL_ERROR) ** -0.5
    return tuple(scales.tolist())
