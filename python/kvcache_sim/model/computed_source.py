"""Step times that must be computed: their code is found by name through an entry point, as plug-ins are.

A set, a file of coefficients and a roofline are data and formulas of this package. Measured kernels, files of
iterations and families of topologies need a fit, whose code packages name in the entry points of
``kvsim.step_times``.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.step_time import StepTime

ENTRY_POINT_GROUP = "kvsim.step_times"
#: Prefix of the names of measured kernels: ``aiconfigurator:MODEL@SYSTEM[:ENGINE][:tpN,…]``.
KERNELS_PREFIX = "aiconfigurator:"
_KERNELS, _ITERATIONS, _FAMILIES = "aiconfigurator", "iterations", "families"


class MeasuredOn(Value):
    """The model and GPU of a step-time model by name (None if unknown), and its TP degree.

    The formats are those stated for the KV cache and for the weights; empty: the model's own.
    """

    model: str | None
    gpu: str | None
    tensor_parallel: int
    kv_dtype: str = ""
    weight_dtype: str = ""


class KernelTables(Protocol):
    """The entry point ``aiconfigurator``: step times composed of measured kernels, by a name's text."""

    def step_time(self, text: str, links: str | None) -> StepTime:
        """Return the step times of a deployment, over the all-reduces of ``links`` where given."""
        ...

    def measured_on(self, text: str) -> MeasuredOn:
        """Return the subject of a deployment."""
        ...


class Iterations(Protocol):
    """The entry point ``iterations``: step times that join the rows of a file of measured iterations."""

    def __call__(self, path: Path) -> StepTime:
        """Return the step times of a file; TraceError for wrong rows."""
        ...


class Families(Protocol):
    """The entry point ``families``: the set of an unmeasured topology, by its name."""

    def __call__(self, name: str) -> dict[str, Any]:
        """Return a topology's set as a parsed model file; UsageError for an unknown one."""
        ...


def kernel_tables() -> KernelTables:
    """Return the source of names with ``KERNELS_PREFIX``."""
    return cast(KernelTables, _loaded(_KERNELS))


def iterations() -> Iterations:
    """Return the source of files of measured iterations."""
    return cast(Iterations, _loaded(_ITERATIONS))


def families() -> Families:
    """Return the source of names ``FAMILY:tpN,epN,dpN``."""
    return cast(Families, _loaded(_FAMILIES))


@cache
def _loaded(name: str) -> object:
    from importlib.metadata import entry_points  # most runs have step times as data

    found = [point for point in entry_points(group=ENTRY_POINT_GROUP) if point.name == name]
    if not found:
        hint = "the installation lacks its entry points: install kvcache-sim again"
        raise UsageError(f"no installed package computes step times of {name!r}", hint=hint)
    return found[0].load()


def is_local_model(model: str) -> bool:
    """Return True if a deployment's model is a folder with a configuration."""
    return (Path(model) / "config.json").is_file()
