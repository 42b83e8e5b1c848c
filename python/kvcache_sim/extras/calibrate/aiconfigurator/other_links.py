"""A table of measured kernels with the work that ranks share apart, and with other links."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.calibrate.aiconfigurator.deployment import deployed_names
from kvcache_sim.extras.calibrate.aiconfigurator.kernels import EXCHANGE, SHARED, MeasuredKernels
from kvcache_sim.extras.calibrate.aiconfigurator.sampled import SampledStepTime
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.links import AllReduces, load_links
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.parametric import six_digits
from kvcache_sim.model.points import Point, Points
from kvcache_sim.model.rank_work import AGREEMENT_MS, Degrees, exchanged_ms

#: Token counts at which the change is evaluated, in addition to the table's breakpoints.
_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
#: The generic name: the links between the GPUs of the system.
NVLINK = "nvlink"


def with_other_links(
    table: SampledStepTime, kernels: MeasuredKernels, links: str, text: str
) -> SampledStepTime:
    """Return the table with all-reduces over ``links``: ``nvlink``, a packaged name or ``FILE.csv``.

    The library's all-reduce times are subtracted at each size, and two all-reduces per layer over the given
    links are added. Of data-parallel ranks of a mixture the exchange is replaced instead. Raises UsageError
    if there is neither, and if the library's figures include all-reduces that cannot be separated.
    """
    deployment = kernels.deployment
    shares = table.model.shared_ranks > 1
    if not shares and (deployment.tensor_parallel == 1 or deployment.data_parallel > 1):
        why = "one GPU" if deployment.data_parallel == 1 else "these ranks exchange nothing"
        raise UsageError("links have no effect here", got=links, hint=why)
    ours, gpu, _ = deployed_names(text)
    if ours is None or (shares and gpu is None):
        raise UsageError("links need the model's shape and its GPU", got=deployment.model)
    model, measured = load_model(ours), _named(links, text)
    tokens = np.array(_TOKENS, np.float64)
    if shares:
        degrees, spec = Degrees(deployment.tensor_parallel, deployment.data_parallel), load_gpu(str(gpu))
        total = tokens * deployment.data_parallel
        exchanged = exchanged_ms(model, spec, degrees, total, measured) - AGREEMENT_MS
        change = exchanged - kernels.operations_ms(_TOKENS, EXCHANGE)
        points = _changed(table.model.shared_points, total, change)
        facts = (*table.facts, f"exchange of ranks over {measured.name} in place of the library's")
        return replace(table, model=replace(table.model, shared_points=_never_falling(points)), facts=facts)
    kernels_ms = kernels.all_reduces_ms(_TOKENS)
    if not kernels_ms.all():
        raise UsageError("all-reduces are inside other figures of the library", got=deployment.model)
    each = measured.ms(deployment.tensor_parallel, tokens * model.hidden_size * 2)
    change = (2 * model.layers + 1) * each - kernels_ms
    corrected = replace(
        table.model,
        base_points=_changed(table.model.base_points, tokens, change),
        past_points=_changed(table.model.past_points, tokens, change),
        decode_points=_changed(table.model.decode_points, tokens, change),
    )
    said = f"all-reduces of {measured.name} in place of the library's"
    at = change[_TOKENS.index(128)]
    facts = (*table.facts, f"{said}: {at:+.2f} ms in a step of 128 tokens")
    return replace(table, model=corrected, facts=facts)


def with_shared_work(table: SampledStepTime, kernels: MeasuredKernels) -> SampledStepTime:
    """Return the table of data-parallel ranks with experts and exchange apart from a rank's own part.

    The library's ranks all have as many tokens: those are a share of the tokens that its experts receive. The
    ranks' agreement, host time that it lacks, is added.
    """
    ranks, tokens = kernels.deployment.data_parallel, np.array(_TOKENS, np.float64)
    ms = np.maximum.accumulate(kernels.operations_ms(_TOKENS, SHARED))
    model = table.model
    changed: dict[str, Any] = {
        name: _changed(getattr(model, name), tokens, -ms)
        for name in ("base_points", "past_points", "decode_points")
    }
    shared_ms = map(six_digits, (ms + AGREEMENT_MS).tolist())
    points = tuple(map(Point, (tokens * ranks).tolist(), shared_ms))
    facts = (
        *table.facts,
        f"experts and exchange of {ranks} ranks by the tokens of all, {AGREEMENT_MS} ms agreement",
    )
    return replace(
        table, model=replace(model, **changed, shared_ranks=ranks, shared_points=points), facts=facts
    )


def _never_falling(points: Points) -> Points:
    rising = np.maximum.accumulate([ms for _, ms in points])
    return tuple(Point(n, float(ms)) for (n, _), ms in zip(points, rising, strict=True))


def _named(links: str, text: str) -> AllReduces:
    if links != NVLINK:
        return load_links(links)
    gpu = deployed_names(text)[1]
    gpu_links = load_gpu(gpu).links if gpu is not None else ""
    if not gpu_links.startswith(NVLINK):
        raise UsageError("no NVLink was measured on this GPU", got=gpu or text, hint="name one: nvlink-h100")
    return load_links(gpu_links)


def _changed(points: Points, tokens: NDArray[np.float64], change: NDArray[np.float64]) -> Points:
    """Return the points with the change added, with the breakpoints of both."""
    if not points:
        return points
    x, y = np.array(points).T
    inside = tokens[(tokens > x[0]) & (tokens < x[-1])]
    every = np.union1d(x, inside)
    base = np.interp(every, x, y) + np.interp(every, tokens, change)
    return tuple(
        Point(float(n), six_digits(max(ms, 0.0))) for n, ms in zip(every, base.tolist(), strict=True)
    )
