"""Stated intervals of a source by name: what ``run_rule`` makes of all measured runs.

``data/run_intervals.json`` keeps them, so that no run reads the measured runs; ``intervals_text`` makes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.computed_source import KERNELS_PREFIX
from kvcache_sim.model.gpus import UNMEASURED, gpu_name, load_gpu
from kvcache_sim.model.linear import LINEAR
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.run_errors import FIGURES, LOADS, Factors, Kind, load_of, measured_runs
from kvcache_sim.model.run_rule import Interval, Rule, combined
from kvcache_sim.model.step_times import is_composed, measured_on

ROOFLINE, KERNELS, COMPOSED, OWN = "roofline", "kernel tables", "composed set", "own iterations"
SOURCES = (ROOFLINE, KERNELS, COMPOSED, OWN)
_ENGINES = ("vllm", "sglang")
_STEPS, _MEASURED = "steps", "measured"
#: Factors of a source, and of every figure, where no run of the engine on the GPU was measured.
WIDE = Factors(1 / 3, 3.0)
_ENGINE_WORDS = {"vllm": "vLLM", "sglang": "SGLang"}


def source_kind(name: str, engine: str = "") -> Kind | None:
    """Return the kind of a step-time model, by its name as in ``load_step_time``.

    ``engine`` is the engine simulated (``vllm`` unless the name says another). A fleet has the kind of one of
    its machines: the gateway of the measured ones is in no scenario. None: a linear source, which has no
    error. Raises UsageError like ``load_step_time``.
    """
    if name.startswith(LINEAR):
        return None
    subject = measured_on(name)
    if not engine:
        engine = "sglang" if name.startswith(KERNELS_PREFIX) and ":sglang" in name else "vllm"
    family = "moe" if subject.model and is_mixture(subject.model) else "dense"
    return Kind(_source(name), family, engine, unmeasured(name, engine))


def unmeasured(name: str, engine: str) -> str:
    """Return ``not measured on MI300X with SGLang``; "" for a source that was fitted or measured there.

    Measured are an engine and a GPU of which there are whole runs, and vLLM on a GPU whose kernels were timed
    under it.
    """
    gpu = measured_on(name).gpu
    if gpu is None or _source(name) not in (ROOFLINE, KERNELS):
        return ""
    spec = load_gpu(gpu) if name.startswith("roofline:") else None
    found = spec.name if spec is not None else gpu_name(gpu)
    is_timed = spec is None or not (spec.kernels == UNMEASURED or spec.kernels.source.startswith("assumed"))
    if f"{engine} {found}" in _stated()[_MEASURED] or (is_timed and engine == "vllm"):
        return ""
    return f"not measured on {found.upper()} with {_ENGINE_WORDS.get(engine, engine)}"


def _source(name: str) -> str:
    if name.startswith("roofline:"):
        return ROOFLINE
    if name.startswith(KERNELS_PREFIX):
        return KERNELS
    if name.endswith((".csv", ".csv.gz")):
        return OWN
    return COMPOSED if is_composed(name) else OWN


def is_mixture(model: str) -> bool:
    """Return True if a model of this name or file has experts; False too for a model that is not known."""
    try:
        groups = load_model(model).groups
    except UsageError:
        return False
    return any(group.feed_forward is not None and group.feed_forward.experts for group in groups)


def step_interval(kind: Kind) -> Interval:
    """Return the stated interval of a kind's step times."""
    if kind.unmeasured:
        return Interval(WIDE, 0, False)
    return _interval(_stated()[str(kind)][_STEPS])


def run_factors(kind: Kind, load: str) -> dict[str, Interval]:
    """Return the intervals of the figures that whole runs of a kind at a load (``LOADS``) leave open."""
    if kind.unmeasured:
        return {figure: Interval(WIDE, 0, False) for figure in FIGURES}
    return {figure: _interval(given) for figure, given in _stated()[str(kind)][load].items()}


def load_of_summary(summary: Mapping[str, Any]) -> str:
    """Return the load of a finished run: near capacity if half of its mean TTFT or more is queueing."""
    latency = summary.get("latency") or {}
    ttft, queue = ((latency.get(name) or {}).get("avg") or 0.0 for name in ("ttft", "queue"))
    return load_of(queue / ttft if ttft else 0.0)


def model_interval(
    figure: str, value: float, slow: float, fast: float, kinds: Iterable[Kind | None], load: str
) -> tuple[float, float]:
    """Return the least and the largest true value of a figure that its model leaves open (90 %).

    Args:
        figure: a key of ``FIGURES``.
        value: the figure as simulated.
        slow: the figure of a replay with all assumptions at their slow bound.
        fast: the same at the fast bound.
        kinds: the kinds of the run's sources (``source_kind``); None is a source without an error.
        load: the load of the run (``load_of_summary``).

    The errors of whole runs of the kind and load are combined with what the replays show beyond the errors
    of steps, as ``run_rule.combined`` does. Of several sources the widest counts. What was not measured has
    the factors ``WIDE``.
    """
    kinds = list(kinds)
    if not value:
        return min(value, slow, fast), max(value, slow, fast)
    if any(kind is not None and kind.unmeasured for kind in kinds):
        return value * WIDE.low, value * WIDE.high
    replayed = Factors(*(edge / value for edge in (min(value, slow, fast), max(value, slow, fast))))
    low, high = replayed
    for position, kind in enumerate(kind for kind in kinds if kind is not None):
        whole = run_factors(kind, load).get(figure)
        if whole is not None and replayed.low > 0:
            stepwise = combined(figure, whole.factors, step_interval(kind).factors, replayed)
            low, high = (min(low, stepwise.low), max(high, stepwise.high)) if position else stepwise
    return value * low, value * high


@cache
def _stated() -> dict[str, Any]:
    stated: dict[str, Any] = json.loads(
        (Path(__file__).parent / "data/run_intervals.json").read_text(encoding="utf-8")
    )
    return stated


def _interval(given: list[float]) -> Interval:
    low, high, runs, is_own = given
    return Interval(Factors(low, high), int(runs), bool(is_own))


def intervals_text() -> str:
    """Return the file of stated intervals, computed from the measured runs."""
    rule = Rule(measured_runs())
    kinds = [
        Kind(source, family, engine)
        for source in SOURCES
        for family in ("dense", "moe")
        for engine in _ENGINES
    ]
    pairs = sorted({f"{run.kind.engine} {run.gpu}" for run in measured_runs()})
    lines = [f"{json.dumps(_MEASURED)}: {json.dumps(pairs)}"]
    for kind in kinds:
        stated: dict[str, Any] = {_STEPS: _plain(rule.steps(kind))}
        for load in LOADS:
            found = {figure: rule.figure(kind, load, figure) for figure in FIGURES}
            stated[load] = {figure: _plain(one) for figure, one in found.items() if one is not None}
        lines.append(f"{json.dumps(str(kind))}: {json.dumps(stated)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _plain(found: Interval | None) -> list[float]:
    assert found is not None, "every source has runs"
    return [round(found.factors.low, 4), round(found.factors.high, 4), found.runs, int(found.is_own)]
