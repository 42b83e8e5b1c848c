"""Step-time models by name or file: entry point of all sources, and the syntax of their names."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.spelling import close_matches
from kvcache_sim.model.catalog import (
    entry_names,
    near_names,
    read_entry,
    read_toml,
    topology_suffix,
    unknown_name,
)
from kvcache_sim.model.computed_source import (
    KERNELS_PREFIX,
    MeasuredOn,
    families,
    is_local_model,
    iterations,
    kernel_tables,
)
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.linear import LINEAR, LINEAR_MODEL, parse_linear
from kvcache_sim.model.model_file import shape_of
from kvcache_sim.model.parametric import parametric_step_time
from kvcache_sim.model.roofline_name import parse_roofline
from kvcache_sim.model.step_time import StepTime

#: Sources other than the packaged sets: syntax and description.
SPELLINGS = (
    (
        "roofline:MODEL@GPU:tpN,epN,dpN,fp8,kv-fp8",
        "from shapes and measured rates of kernels; each a packaged name or a file",
    ),
    ("aiconfigurator:MODEL@SYSTEM:ENGINE:tpN", "from measured kernels; needs the extra hardware"),
    (
        "linear:base=5ms,token=20us,decode=1us,context=50ns",
        "explicit costs: per step, token, decode, and token that a decode attends to",
    ),
    ("b300-qwen3.6-35b-a3b:tp4,ep4", "a topology without a set, from the others of its family"),
    ("my.toml", "coefficients: kvsim calibrate fit, kvsim step-times new"),
    ("rows.csv", "measured iterations, interpolated"),
)


def unknown_step_time(name: str, names: tuple[str, ...]) -> UsageError:
    """Return the error for a name that is not a set: the nearest sets, and valid names of other sources.

    Sets composed of kernels come last: on real runs they are no nearer than a roofline.
    """
    refusal = unknown_name("step time", name, names, "kvsim step-times list")
    found = near_names(name, names)
    packaged, composed = (
        " or ".join(near for near in found if is_composed(near) == is_last) for is_last in (False, True)
    )
    near = f"did you mean {packaged}? " if packaged else ""
    model, gpu, degree = _meant(name.lower())
    subject = f"{model or 'MODEL'}@{gpu or 'GPU'}"
    tail = f":tp{degree}" if degree else "" if model and gpu else ":tpN"
    measured = f"aiconfigurator:{subject}{':vllm' + tail if tail else ''}"
    last = f", or {composed} (composed of kernels)" if composed else ""
    refusal.hint = f"{near}or roofline:{subject}{tail}, or {measured} (extra hardware){last}"
    return refusal


def _meant(name: str) -> tuple[str, str, str]:
    """Return the model, GPU and TP degree that a name such as ``h200-qwen3-32b-tp4`` seems to mean."""
    degree = re.search(r"tp(\d{1,3})$", name)
    rest = name[: degree.start()] if degree else name
    gpu = max((gpu for gpu in entry_names("gpus") if gpu in rest), key=len, default="")
    rest = rest.replace(gpu, "", 1).strip("-_ :@")
    near = close_matches(rest, entry_names("models"), 1, 0.75)
    return near[0] if near else "", gpu, degree[1] if degree else ""


_ROOFLINE = "roofline:"
#: The set of a scenario that names none.
DEFAULT_STEP_TIME = "h100-llama-3.1-8b-tp1"
#: Models of the same shapes and so of the same kernels: a set measured on one serves the other by its name.
_SAME_SHAPE = (("llama-3-8b", "llama-3.1-8b"), ("llama-3-70b", "llama-3.1-70b"))


@cache
def step_time_names() -> tuple[str, ...]:
    """Return the names of the shipped coefficient sets."""
    return entry_names("step_times")


def load_step_time(name: str, links: str | None = None, stages: int = 1) -> StepTime:
    """Return a step-time model by name.

    A shipped set (``h100-llama-3.1-8b-tp1``), a model file (``*.toml``), measured iterations (``*.csv``,
    interpolated), ``roofline:MODEL@GPU[:tpN,epN,dpN,fp8,kv-fp8]``, ``aiconfigurator:MODEL@SYSTEM`` with an
    engine and options, or ``linear:`` with explicit costs. ``links`` names the all-reduces and exchanges of a
    roofline or of measured kernels, those of the GPU unless given; pipeline ``stages`` share the weights of
    a roofline. Raises UsageError for an unknown name (listing the names and the nearest one), a missing or
    invalid file, or ``links`` without an all-reduce; TraceError for invalid measurements.
    """
    if name.startswith(_ROOFLINE):
        return _roofline(name.removeprefix(_ROOFLINE), links, stages)
    if name.startswith(KERNELS_PREFIX):
        return kernel_tables().step_time(name.removeprefix(KERNELS_PREFIX), links)
    if links is not None:
        hint = "they go with roofline:…:tpN and aiconfigurator:…:tpN"
        raise UsageError("links are in a fitted step time already", got=links, hint=hint)
    if name.startswith(LINEAR):
        return parse_linear(name)
    if name.endswith(".toml"):
        return _from_file(Path(name))
    if name.endswith((".csv", ".csv.gz")):
        return iterations()(Path(name))
    return parametric_step_time(_packaged(name)["coefficients"], name)


def step_time_facts(name: str, links: str | None = None) -> tuple[str, ...]:
    """Return the notes on a source, one per line: parallelism, dtypes, errors."""
    if not name.startswith(KERNELS_PREFIX):
        return ()
    found = load_step_time(name, links)
    return tuple(f"step_time: {fact}" for fact in getattr(found, "facts", ()))


def is_composed(name: str) -> bool:
    """Return True if a shipped set or a model file was composed of measured kernels."""
    return str(step_time_entry(name).get("source", "")).startswith("composed")


def contains_host(name: str) -> bool:
    """Return True if a source's rows are whole steps, which contain the host's times: no sums of kernels."""
    return not (name.startswith((_ROOFLINE, KERNELS_PREFIX)) or is_composed(name))


def own_set(
    model: str, gpu: str, tensor_parallel: int, expert_parallel: int = 1, data_parallel: int = 1
) -> str | None:
    """Return the packaged set of a deployment's own iterations, or of a model of the same shapes, or None."""
    degrees = topology_suffix(tensor_parallel, expert_parallel, data_parallel)
    model = shape_of(model)
    for served in (model, *(a if b == model else b for a, b in _SAME_SHAPE if model in (a, b))):
        name = f"{gpu}-{served}-{degrees}".lower()
        if name in step_time_names() and not is_composed(name) and "held_out" in step_time_entry(name):
            return name
    return None


def nearest_source(model: str, gpu: str, tensor_parallel: int) -> str:
    """Return the source nearest to real runs: a set of the deployment's own iterations, else its roofline."""
    degree = f":tp{tensor_parallel}" if tensor_parallel > 1 else ""
    return own_set(model, gpu, tensor_parallel) or f"{_ROOFLINE}{model}@{gpu}{degree}"


def step_time_entry(name: str) -> dict[str, Any]:
    """Return a shipped set or a model file as parsed TOML; raises UsageError like ``load_step_time``."""
    return _read_file(Path(name)) if name.endswith(".toml") else _packaged(name)


def _packaged(name: str) -> dict[str, Any]:
    if name.lower() in step_time_names():
        return read_entry("step_times", "step time", name)
    if ":" in name and name.partition(":")[0].lower() in entry_names("families"):
        return families()(name)
    found = same_shape_set(name)
    if found is None:
        raise unknown_step_time(name, step_time_names())
    measured, model = found
    return {**read_entry("step_times", "step time", measured), "model": model}


def same_shape_set(name: str) -> tuple[str, str] | None:
    """Return the packaged set behind a name that has a model of the same shapes, and that model."""
    if name.lower() in step_time_names():
        return None
    pairs = [pair for one, other in _SAME_SHAPE for pair in ((one, other), (other, one))]
    for measured, served in pairs:
        renamed = name.lower().replace(f"-{served}-", f"-{measured}-")
        if renamed != name.lower() and renamed in step_time_names():
            return renamed, served
    return None


def with_absolute_files(name: str, absolute: Callable[[str], str]) -> str:
    """Return a step-time model's name with its files replaced by ``absolute``.

    A roofline's files are its model and its GPU.
    """
    if name.startswith(_ROOFLINE):
        return _ROOFLINE + parse_roofline(name.removeprefix(_ROOFLINE)).absolute(absolute)
    if name.startswith(KERNELS_PREFIX):
        model, at, rest = name.removeprefix(KERNELS_PREFIX).partition("@")
        return f"{KERNELS_PREFIX}{absolute(model) if is_local_model(model) else model}{at}{rest}"
    return absolute(name) if name.endswith((".toml", ".csv", ".csv.gz")) else name


def files_named_in(name: str) -> tuple[str, ...]:
    """Return the files, or folders with one, in a step-time model's name."""
    found: list[str] = []

    def keep(path: str) -> str:
        found.append(path)
        return path

    with_absolute_files(name, keep)
    return tuple(found)


def _roofline(text: str, links: str | None, stages: int) -> StepTime:
    from kvcache_sim.model.links import load_links
    from kvcache_sim.model.roofline import roofline_step_time

    named = parse_roofline(text)
    if links is not None and named.tensor_parallel * named.data_parallel == 1:
        raise UsageError(
            "links have no effect on one GPU", got=links, hint="they go with roofline:…:tpN or :dpN"
        )
    measured = load_links(links) if links is not None else None
    gpu = load_gpu(named.gpu)
    return roofline_step_time(named.spec(), gpu, named.tensor_parallel, measured, named.data_parallel, stages)


def _from_file(path: Path) -> StepTime:
    return parametric_step_time(_read_file(path)["coefficients"], str(path))


def _read_file(path: Path) -> dict[str, Any]:
    entry = read_toml(path, "step-time")
    if not isinstance(entry.get("coefficients"), dict):
        raise UsageError("step-time file without a [coefficients] table", where=str(path))
    return entry


def measured_on(name: str) -> MeasuredOn:
    """Return the subject of a step-time model; raises UsageError like ``load_step_time``."""
    if name.startswith(_ROOFLINE):
        named = parse_roofline(name.removeprefix(_ROOFLINE))
        return MeasuredOn(named.model, named.gpu, named.tensor_parallel, named.kv_dtype, named.weight_dtype)
    if name.startswith(KERNELS_PREFIX):
        return kernel_tables().measured_on(name.removeprefix(KERNELS_PREFIX))
    if name.startswith(LINEAR):
        parse_linear(name)
        return MeasuredOn(LINEAR_MODEL, None, 1)
    if name.endswith((".csv", ".csv.gz")):
        return MeasuredOn(None, None, 1)
    return _measured_on(_read_file(Path(name))) if name.endswith(".toml") else _packaged_measured_on(name)


@cache
def _packaged_measured_on(name: str) -> MeasuredOn:
    return _measured_on(_packaged(name))


def _measured_on(entry: dict[str, Any]) -> MeasuredOn:
    return MeasuredOn(entry.get("model"), entry.get("gpu"), int(entry.get("tensor_parallel", 1)))


@cache
def is_sum_of_kernels(name: str) -> bool:
    """Return True for rooflines, kernel tables and sets composed of these: kernels that were timed alone.

    Kernels of the RTX sets were timed inside vLLM with its sampler; sets of iterations have all of a step.
    """
    if name.startswith(("roofline:", KERNELS_PREFIX)):
        return True
    packaged = name
    if name not in step_time_names():
        same = same_shape_set(name)
        if same is None:
            return False
        packaged = same[0]
    entry = read_entry("step_times", "step time", packaged)
    return "iter_composed_a100_h100" in str(entry.get("source"))
