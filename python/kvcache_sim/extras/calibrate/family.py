"""Sets of unmeasured topologies by name: ``b300-qwen3.6-35b-a3b:tp4,ep4``, from a packaged family."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import numpy as np

from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.calibrate.transfer import Topology, TopologyFit
from kvcache_sim.model.catalog import entry_names, read_entry
from kvcache_sim.model.parametric import ParametricStepTime


def family_entry(name: str) -> dict[str, Any]:
    """Return a topology's set as a model file: the steps of its family.

    A topology that was measured is its packaged set. ``held_out`` are the errors on topologies left out, of
    one rank or of several. Raises UsageError for an unknown family, degrees that do not fit, or more GPUs
    than any measured topology has.
    """
    family, _, options = name.lower().partition(":")
    table = read_entry("families", "family of topologies", family)
    wanted = _topology(options)
    sets = {
        _measured(set_name): set_name
        for set_name in entry_names("step_times")
        if set_name.startswith(f"{family}-tp")
    }
    if wanted in sets:
        return read_entry("step_times", "step time", sets[wanted])
    gpus = wanted.tensor_parallel * wanted.data_parallel
    if gpus > table["gpus"]:
        raise UsageError("no measured topology of as many GPUs", got=name, expected=f"up to {table['gpus']}")
    costs = {share: np.array(coefficients) for share, coefficients in table["costs"].items()}
    degrees = {
        "tensor": wanted.tensor_parallel,
        "expert": wanted.expert_parallel,
        "data": wanted.data_parallel,
    }
    return {
        **{key: table[key] for key in ("model", "gpu", "source")},
        "held_out": table["held_out_ranks" if wanted.data_parallel > 1 else "held_out"],
        **{f"{kind}_parallel": degree for kind, degree in degrees.items()},
        "coefficients": _coefficients(TopologyFit(costs).model(wanted)),
    }


def _coefficients(model: ParametricStepTime) -> dict[str, Any]:
    """Return a model's coefficients as in a file: points as lists, without those that are not set."""
    found = {field.name: getattr(model, field.name) for field in fields(model)}
    points = {key: [list(pair) for pair in value] for key, value in found.items() if isinstance(value, tuple)}
    return {key: value for key, value in {**found, **points}.items() if value or key == "graph_tokens"}


def _topology(options: str) -> Topology:
    """Return the topology of ``tp4,ep4,dp2``; UsageError if it is not one."""
    given = dict(re.findall(r"(tp|ep|dp)([1-9]\d{0,2})", options))
    topology = Topology(*(int(given.get(kind, 1)) for kind in ("tp", "ep", "dp")))
    gpus = topology.tensor_parallel * topology.data_parallel
    if ",".join(f"{kind}{n}" for kind, n in given.items()) != options or topology.expert_parallel not in (
        1,
        gpus,
    ):
        raise UsageError("not a topology", got=repr(options), expected="tp4,ep8,dp2, with ep 1 or tp × dp")
    return topology


def _measured(name: str) -> Topology:
    entry = read_entry("step_times", "step time", name)
    return Topology(*(int(entry.get(f"{kind}_parallel", 1)) for kind in ("tensor", "expert", "data")))
