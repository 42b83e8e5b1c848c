"""A host's times from a log of requests alone, over step times that lack them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng import stream
from kvcache_sim.base.values import Value
from kvcache_sim.extras.calibrate.fit import predict_ms
from kvcache_sim.extras.calibrate.request_fit import FEWEST_REQUESTS
from kvcache_sim.extras.calibrate.request_steps import MeasuredSums, TimedRequests, measured_sums
from kvcache_sim.extras.calibrate.rows import held_out, scipy_optimize
from kvcache_sim.model.adjusted import CAPTURED_TOKENS
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.served_kernels import served_kernels
from kvcache_sim.model.step_times import contains_host, load_step_time

#: Relative errors above this value have decreasing weight (soft L1).
_ROBUST_SCALE = 0.05
_DRAWS = 20
_START = (1.0, 0.5, 10.0, 0.001)


class HostTimes(NamedTuple):
    """A host's times in ms: of every step, of a layer's launch, of a client, of a prompt token before it."""

    step: float
    launch: float
    client: float
    token: float

    def settings(self) -> dict[str, str]:
        """Return the keys of ``replica`` that state them."""
        keys = ("step_extra", "launch_per_layer", "client_offset", "client_offset_per_token")
        return {key: f"{round(1e6 * ms)}ns" for key, ms in zip(keys, self, strict=True)}


class HostFit(Value):
    """The times found, the middle 90 % of those of redrawn requests, and held-out errors in per cent.

    ``errors`` are the mean absolute ones of TPOT and of TTFT: without a host, and with the one found.
    """

    times: HostTimes
    low: HostTimes
    high: HostTimes
    errors: dict[str, tuple[float, float]]


class _Problem:
    """Sums of steps over one source: the times of a log as a host's times make them."""

    def __init__(
        self,
        log: TimedRequests,
        sums: MeasuredSums,
        kernels: NDArray[np.float64],
        layers: int,
        is_eager: bool,
    ) -> None:
        self._sums, self._kernels, self._layers = sums, kernels, layers
        self._prompts = log.prompt_tokens[sums.request]
        steps = sums.steps
        tokens = steps.prefill_tokens + steps.decode_sequences
        self._launched = (steps.prefill_tokens > 0) & (is_eager | (tokens > CAPTURED_TOKENS))

    def times_ms(self, host: HostTimes) -> NDArray[np.float64]:
        """Return every measured time as simulated with a host."""
        least = np.where(self._launched, host.launch * self._layers, 0.0)
        each = np.maximum(self._kernels + host.step, least)
        client = self._sums.to_first * (host.client + host.token * self._prompts)
        return self._sums.sums(each[:, None])[:, 0] + client

    def errors(self, host: HostTimes) -> NDArray[np.float64]:
        """Return the relative error of every time."""
        return self.times_ms(host) / self._sums.measured_ms - 1

    def solved(self, weight: NDArray[np.float64]) -> HostTimes:
        """Return the host of least weighted relative error, none below zero."""
        found = scipy_optimize().least_squares(
            lambda x: weight * self.errors(HostTimes(*x)),
            _START,
            bounds=(0, np.inf),
            loss="soft_l1",
            f_scale=_ROBUST_SCALE,
            x_scale=_START,
        )
        return HostTimes(*map(float, found.x))


def fit_host(
    log: TimedRequests, source: str, model: ModelSpec, max_num_batched_tokens: int, is_eager: bool = False
) -> HostFit:
    """Return the host of a log's server over a source of step times; needs scipy.

    A step takes its kernels and the time of every step; one with a chunk at least the launch of all layers
    (of more than 512 tokens, unless ``is_eager``: SGLang). A first token also waits for the client. A fifth
    of the requests is held out for the errors; intervals are of 20 fits to requests drawn with replacement.
    Raises UsageError for too few requests, and for a source that contains its host.
    """
    if len(log) < FEWEST_REQUESTS:
        raise UsageError("too few requests to fit", got=str(len(log)), expected=f"{FEWEST_REQUESTS} or more")
    if contains_host(source):
        raise UsageError(
            f"{source} was timed in its engine", hint="its host is in it; fit one to roofline:MODEL@GPU"
        )
    sums = measured_sums(log, max_num_batched_tokens)
    kernels = served_kernels(load_step_time(source), source, model)
    problem = _Problem(log, sums, predict_ms(kernels, sums.steps), model.layers, is_eager)
    out = held_out(len(log))[sums.request]
    found = problem.solved(np.where(out, 0.0, 1.0))
    generator = stream(20261129, "calibration.host")
    drawn = [
        problem.solved(np.where(out, 0.0, np.sqrt(counts[sums.request])))
        for counts in (
            np.bincount(generator.integers(0, len(log), len(log)), minlength=len(log)) for _ in range(_DRAWS)
        )
    ]
    low, high = np.percentile(np.array(drawn), (5, 95), axis=0)
    none = problem.errors(HostTimes(0.0, 0.0, 0.0, 0.0))
    fitted = problem.errors(found)
    rows = {"TPOT": out & ~sums.to_first, "TTFT": out & sums.to_first}
    errors = {
        name: (100 * float(np.abs(none[at]).mean()), 100 * float(np.abs(fitted[at]).mean()))
        for name, at in rows.items()
        if at.any()
    }
    return HostFit(found, HostTimes(*map(float, low)), HostTimes(*map(float, high)), errors)
