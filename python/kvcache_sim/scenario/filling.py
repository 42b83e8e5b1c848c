"""Values that a scenario leaves open: paths, defaults, the model, GPU capacity; all values written out."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache.store_kinds import WITH_LOWER
from kvcache_sim.model.computed_source import KERNELS_PREFIX
from kvcache_sim.model.hosts import load_host
from kvcache_sim.model.model_file import names_model_file
from kvcache_sim.model.step_times import load_step_time, measured_on, with_absolute_files
from kvcache_sim.scenario import engine_tiers
from kvcache_sim.scenario.gpu_memory import (
    CONTEXT,
    GPU_CAPACITY,
    refuse_small_gpu,
    with_context_length,
    with_gpu_capacity,
)
from kvcache_sim.scenario.kv_copies import connector_rules
from kvcache_sim.scenario.machines import pool_role, with_machines_of_pools, with_machines_of_ranks
from kvcache_sim.scenario.release_defaults import with_release, with_running_requests, written_keys
from kvcache_sim.scenario.router_section import RouterSection
from kvcache_sim.scenario.schema import ChannelSection, MachineSection, ScenarioModel
from kvcache_sim.scenario.section import plain_values
from kvcache_sim.scenario.served_model import served_model
from kvcache_sim.scenario.token_capacities import with_blocks
from kvcache_sim.scenario.trace_section import TraceChanges
from kvcache_sim.scenario.validation import check
from kvcache_sim.scenario.yaml_tree import Tree, at_location, setting_file
from kvcache_sim.serving.router.registry import needs_of

_COPY_SHARE = "copy_gpu_share"


def fill(model: ScenarioModel, directory: Path, tree: Tree) -> ScenarioModel:
    """Return the scenario with every open value filled in; paths are relative to ``directory``.

    Raises UsageError for settings that a generator refuses, for an unknown model or step-time set, and if the
    model or the GPU's capacity cannot be determined.
    """
    model = _with_trace_block(with_machines_of_pools(_absolute(model, directory, tree), tree), tree)
    model = with_machines_of_ranks(model, tree)
    if model.router != RouterSection() or "handover" in tree.values:
        model = _with_router_defaults(model, tree)
    model = replace(model, workload=_workload(model, tree))
    step_time = model.replica.step_time
    named = model.model or at_location(tree, ("replica", "step_time"), lambda: measured_on(step_time).model)
    if named is None:
        if step_time.startswith(KERNELS_PREFIX):  # the library knows no such model: its names are nearer
            at_location(tree, ("replica", "step_time"), lambda: load_step_time(step_time))
        raise UsageError("the step-time file names no model", tree.location(("replica",)), hint="set model")
    model = _with_model(model, named, tree)
    common = with_release(MachineSection(tiers=model.tiers, replica=model.replica), model, tree)
    model = with_blocks(_with_semantics(replace(model, replica=common.replica), tree), tree)
    common = _with_copies(replace(common, tiers=model.tiers), model, tree)
    common = with_gpu_capacity(common, model, tree, GPU_CAPACITY)
    common = with_context_length(common, model, tree, CONTEXT)
    common = with_running_requests(common, model, tree)
    if model.tiers.compute.capacity.auto:
        refuse_small_gpu(common, model, tree, CONTEXT)
    return replace(model, tiers=common.tiers, replica=common.replica)


def _with_trace_block(model: ScenarioModel, tree: Tree) -> ScenarioModel:
    """Return the model with ``cache.block_size`` filled in if it is not written.

    A trace's block size is detected from the first bytes of its file. The default stays for a pipe, a missing
    file and a file that is not a trace; the reader reports the error later.
    """
    given = tree.values.get("cache")
    if isinstance(given, dict) and "block_size" in given:
        return model
    block = _block_of(model)
    if block is None:
        return model
    return replace(model, cache=replace(model.cache, block_size=block))


def _block_of(model: ScenarioModel) -> int | None:
    section = model.trace
    if section is None:
        block = model.workload.get("block_size") if "kind" in model.workload else None
        return block if isinstance(block, int) and block > 0 else None
    if not os.path.isfile(section.path):
        return section.block_size
    from kvcache_sim.workload.readers.format import block_of_file
    from kvcache_sim.workload.readers.settings import ReadSettings

    known = ReadSettings(section.block_size, format=section.format, bytes_per_token=section.bytes_per_token)
    return block_of_file(section.path, known)


def _with_router_defaults(model: ScenarioModel, tree: Tree) -> ScenarioModel:
    """Return the scenario with the routers' own defaults of the keys that it leaves open."""
    router = decode = needs_of(model.router.policy)
    if "handover" in tree.values:
        decode = needs_of(model.handover.router)
    given = tree.values.get("router")
    of_decode = {key: value for key, value in decode.defaults.items() if key not in router.keys}
    filled = of_decode | dict(router.defaults)
    if isinstance(given, dict):
        filled = {key: value for key, value in filled.items() if key not in given}
    return replace(model, router=replace(model.router, **filled)) if filled else model


def _workload(model: ScenarioModel, tree: Tree) -> dict[str, Any]:
    """Return the checked ``workload`` section; a generator's with all its keys.

    Generated ids use the cache's block size unless set otherwise, so that every whole block can be shared.
    """
    section = {key: value for key, value in model.workload.items() if value is not None}
    if "kind" not in section:
        check(TraceChanges, section, tree, ("workload",))
        return section
    from kvcache_sim.scenario.workload_defaults import written_out

    try:
        return written_out({"block_size": model.cache.block_size, **section})
    except UsageError as error:
        location = tree.location(tuple(error.where.split(".")))
        what = f"{error.where}: {error.what}"
        raise UsageError(what, location, error.got, error.expected, error.hint) from None


def _with_semantics(model: ScenarioModel, tree: Tree) -> ScenarioModel:
    """Return the scenario with its cache semantics filled in.

    An instant replay of a bounded GPU without lower tiers uses ``vllm``, exact to the block. An engine's
    scheduler uses its own cache; all other scenarios use the tree.
    """
    given = tree.values.get("cache")
    if isinstance(given, dict) and "semantics" in given:
        return model
    if model.replica.scheduler != "kvsim":
        return _with(model, model.replica.scheduler)
    semantics = engine_tiers.lower_semantics(model)
    if semantics is not None:
        return _with(model, WITH_LOWER[semantics].name)
    plain = model.cache.enabled and model.cache.accounting == "detailed" and model.cache.policy == "lru"
    views = all(view == type(view)() for view in (model.session_view, model.prefix_view))
    alone = len(model.tiers.present) == 1 and not (model.machines or model.tiers.compute.policy)
    bounded = str(model.tiers.compute.capacity) != "unbounded"
    if not (model.replica.instant and plain and views and alone and bounded):
        return model
    return _with(model, "vllm")


def _with_copies(machine: MachineSection, model: ScenarioModel, tree: Tree) -> MachineSection:
    """Return a machine with the share of the GPU that the copies of its tier's engine take, if not given.

    Below an engine's own scheduler copies that it waits for are parts of its steps.
    """
    share = connector_rules(engine_tiers.lower_semantics(model)).get(_COPY_SHARE)
    replica, written = machine.replica, written_keys(tree)
    by_host = replica.host is not None and _COPY_SHARE in load_host(replica.host).figures
    is_filled = replica.scheduler == "kvsim" and not replica.instant
    if share is None or not is_filled or _COPY_SHARE in written or by_host:
        return machine
    return replace(machine, replica=replace(replica, copy_gpu_share=share))


def _with(model: ScenarioModel, semantics: str) -> ScenarioModel:
    return replace(model, cache=replace(model.cache, semantics=semantics))


def _with_model(model: ScenarioModel, named: str, tree: Tree) -> ScenarioModel:
    """Return the scenario with the language model's name and KV size filled in."""
    model = replace(model, model=named)
    spec = at_location(tree, ("model",), lambda: served_model(model))
    size = model.cache.kv_bytes_per_token or spec.kv_bytes_per_token
    cache = replace(model.cache, kv_bytes_per_token=size)
    return replace(model, cache=cache)


def _absolute(model: ScenarioModel, directory: Path, tree: Tree) -> ScenarioModel:
    """Return the scenario with its paths made absolute."""

    def located(name: str, *path: str) -> str:
        return setting_file(tree, path, directory, name)

    update: dict[str, Any] = {}
    if model.trace is not None:
        tokenizer = model.trace.tokenizer
        paths = {
            "path": located(model.trace.path, "trace", "path"),
            "tokenizer": tokenizer and located(tokenizer, "trace", "tokenizer"),
        }
        update["trace"] = replace(model.trace, **paths)
    step_time = with_absolute_files(
        model.replica.step_time, lambda name: located(name, "replica", "step_time")
    )
    named = {"step_time": step_time}
    if model.replica.links is not None and model.replica.links.endswith(".csv"):
        named["links"] = located(model.replica.links, "replica", "links")
    update["replica"] = replace(model.replica, **named)
    if model.model is not None and names_model_file(model.model):
        update["model"] = located(model.model, "model")
    return replace(model, **update)


def resolve(
    model: ScenarioModel,
    machines: tuple[MachineSection, ...],
    channels: Mapping[str, ChannelSection],
    of_host: Collection[str] = (),
) -> dict[str, Any]:
    """Return the scenario as plain values in the schema's order, defaults included, units written out.

    ``of_host``: keys of ``replica`` that stay open, for the host to fill.
    """
    plain = plain_values(model)
    plain["channels"] = {name: plain_values(section) for name, section in channels.items()}
    overrides = [_own(model, plain, index, machine) for index, machine in enumerate(machines)]
    while overrides and not overrides[-1]:
        overrides.pop()
    plain["machines"] = overrides
    for key in of_host:
        del plain["replica"][key]
    return {key: value for key, value in plain.items() if value is not None}


def _own(model: ScenarioModel, plain: dict[str, Any], index: int, machine: MachineSection) -> dict[str, Any]:
    """Return a machine's differences from the common settings; ``plain``: the scenario's plain values."""
    role = pool_role(model, index)
    if machine.tiers is model.tiers and machine.replica is model.replica and machine.role == role:
        return {}
    return _difference(
        plain_values(machine), {"tiers": plain["tiers"], "replica": plain["replica"], "role": role}
    )


def _difference(value: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that, merged over ``base``, give ``value``."""
    result: dict[str, Any] = {}
    for key, inner_value in value.items():
        if inner_value == base[key]:
            continue
        inner = base[key]
        result[key] = (
            _difference(inner_value, inner)
            if isinstance(inner_value, dict) and isinstance(inner, dict)
            else inner_value
        )
    return result
