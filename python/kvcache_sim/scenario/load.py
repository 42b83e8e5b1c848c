"""Entry point: a scenario file, ``--set`` values and a trace to settings that can be run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvcache_sim.base.errors import InputOutputError, UsageError
from kvcache_sim.base.regular_files import open_regular
from kvcache_sim.base.spelling import close_matches
from kvcache_sim.base.values import Value
from kvcache_sim.model.step_times import step_time_facts
from kvcache_sim.policies.plugins.permission import names_only
from kvcache_sim.scenario.channels import wire, with_presets
from kvcache_sim.scenario.effects import refuse_without_effect
from kvcache_sim.scenario.filling import fill, resolve
from kvcache_sim.scenario.gpu_memory import GpuCapacity, gpu_capacity
from kvcache_sim.scenario.idle import TOLERANCES, Idle, IdleError, Tolerates, leave_out, of_one_run, varied
from kvcache_sim.scenario.kv_copies import size_notes
from kvcache_sim.scenario.lowering import left_to_hosts, lower
from kvcache_sim.scenario.machines import build_machines
from kvcache_sim.scenario.policy_names import (
    eviction_plugins_of,
    plugins_of,
    refuse_broken_plugins,
    refuse_unknown_eviction,
    refuse_unknown_policies,
    with_absolute_plugins,
)
from kvcache_sim.scenario.presets import folder_of, scenario_file
from kvcache_sim.scenario.release_defaults import release_use
from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.scenario.served_model import copies_of, other_kv_timed, other_model_timed, taken_as_full
from kvcache_sim.scenario.validation import check
from kvcache_sim.scenario.yaml_tree import MAX_BYTES, Tree, absolute, apply_override, read_tree, set_value
from kvcache_sim.serving.settings import ClusterSettings


class Scenario(Value):
    """A scenario that passed every check.

    ``resolved`` holds every setting as plain values; loading it again gives the same run.
    """

    model: ScenarioModel
    settings: ClusterSettings
    resolved: dict[str, Any]
    #: Location of each setting, for errors that need the trace.
    tree: Tree
    #: Source of the GPU's capacity, if known.
    gpu_capacity: GpuCapacity | None = None
    #: Settings that were left out because nothing uses them, each with its refusal.
    idle: tuple[IdleError, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the notes on the scenario, one per line."""
        found = self.gpu_capacity
        replica = self.model.replica
        step_time = () if replica.instant else step_time_facts(replica.step_time, replica.links)
        assumed = (other_model_timed(self.model), other_kv_timed(self.model), taken_as_full(self.model))
        release = release_use(self.model)
        read = () if release is None or not release.note else (release.note,)
        idle = (f"{error.what} here: {error.hint}" for error in self.idle)
        assumptions = (*step_time, *(one for one in assumed if one))
        return (
            *read,
            *assumptions,
            *((found.sentence,) if found is not None and found.exceeds else ()),
            *idle,
        )

    @property
    def size_notes(self) -> tuple[str, ...]:
        """Return whose bytes the sizes of the first machine's tiers count, where ranks hold copies.

        None of cache groups, whose blocks hold no fixed number of tokens.
        """
        if self.settings.cache.groups is not None:
            return ()
        size, tiers = self.settings.cache.block_size_tokens, self.settings.machines[0].tiers
        tokens = {tier.name: tier.capacity_blocks and tier.capacity_blocks * size for tier in tiers}
        written = {name: tier.capacity for name, tier in self.model.tiers.present.items() if name in tokens}
        return tuple(size_notes(written, tokens, copies_of(self.model, self.model.replica)))


#: Tokens per block of vLLM.
ENGINE_BLOCK_TOKENS = 16


def load_scenario(
    path: Path | None, overrides: Sequence[str] = (), trace: Path | None = None, idle: Idle = "error"
) -> Scenario:
    """Return the scenario of a file (None: all defaults) with overrides and a trace applied.

    ``preset:NAME`` is a file that comes with the package. A setting that nothing uses is refused, with
    ``idle`` "warn" it is left out and reported (``Scenario.idle``).
    Raises UsageError with the location of the error, InputOutputError if the file cannot be read.
    """
    if path is None:
        return scenario_from_text("", "", Path.cwd(), overrides, trace, idle)
    path = scenario_file(path)
    return scenario_from_text(read_scenario(path), str(path), folder_of(path), overrides, trace, idle)


def load_served(path: Path | None, overrides: Sequence[str], arrivals: Path) -> Scenario:
    """Return the scenario of a file for serving external requests, which are written to a trace.

    Requests of the file are left out; without ``cache.block_size`` blocks have the size of theirs, else 16
    tokens. Raises as ``load_scenario``.
    """
    source = None if path is None else scenario_file(path)
    text, directory = (b"", Path.cwd()) if source is None else (read_scenario(source), folder_of(source))
    block_size: int | None = None
    while True:
        tree = _tree(text, str(source or ""), overrides)
        left_out = [tree.values.pop(section, None) for section in ("workload", "trace", "measure")]
        if "block_size" not in (tree.values.get("cache") or {}):
            sizes = [section.get("block_size") for section in left_out if isinstance(section, dict)]
            set_value(tree, ("cache", "block_size"), next(filter(None, sizes), ENGINE_BLOCK_TOKENS), "serve")
        set_value(tree, ("trace", "path"), str(arrivals), str(arrivals))
        set_value(tree, ("trace", "format"), "mooncake", "mooncake")
        if block_size is not None:
            set_value(tree, ("trace", "block_size"), block_size, str(block_size))
            return scenario_from_tree(tree, directory)
        block_size = scenario_from_tree(tree, directory).model.cache.block_size


def load_varied(path: Path, overrides: Sequence[str] = ()) -> Scenario:
    """Return the scenario of a file as one variant of several: see ``varied_from_text``."""
    return varied_from_text(read_scenario(path), str(path), folder_of(path), overrides)


def scenario_from_text(
    text: str | bytes,
    source: str,
    directory: Path,
    overrides: Sequence[str] = (),
    trace: Path | None = None,
    idle: Idle = "error",
) -> Scenario:
    """Return the scenario of YAML text; its paths are relative to ``directory``.

    A setting that nothing uses is refused, unless the text has it and an override made it useless.
    """
    tree = _tree(text, source, overrides)
    if trace is not None:
        set_value(tree, ("trace", "path"), absolute(Path.cwd(), str(trace)), str(trace))
    return scenario_from_tree(tree, directory, TOLERANCES[idle])


def scenario_of_run(text: str | bytes, directory: Path) -> Scenario:
    """Return the scenario of a run's directory, for reading the run: names of plug-ins stay text."""
    with names_only():
        return scenario_from_text(text, str(directory / "scenario.yaml"), directory)


def scenario_to_repeat(text: str, directory: Path, plugins: bool) -> Scenario:
    """Return the scenario of a run's directory, for another run of it.

    Its plug-ins are imported if ``plugins`` is true; otherwise a scenario that names one raises UsageError.
    """
    scenario = scenario_of_run(text, directory)
    named = [*plugins_of(scenario.tree), *eviction_plugins_of(scenario.tree)]
    if named and not plugins:
        path, name = named[0]
        raise UsageError(
            "the run needs a plug-in, which is code",
            where=scenario.tree.location(path),
            got=repr(name),
            hint="read it first; --plugins runs it",
        )
    return scenario_from_text(text, str(directory / "scenario.yaml"), directory) if named else scenario


def varied_from_text(text: str | bytes, source: str, directory: Path, overrides: Sequence[str]) -> Scenario:
    """Return the scenario of a cell of a study, or of a side of a comparison.

    Settings that nothing uses are left out and reported (``Scenario.idle``): another cell may use them.
    """
    return scenario_from_tree(_tree(text, source, overrides), directory, varied)


def _tree(text: str | bytes, source: str, overrides: Sequence[str]) -> Tree:
    tree = read_tree(text.encode() if isinstance(text, str) else text, source)
    for assignment in overrides:
        apply_override(tree, assignment)
    return tree


def scenario_from_tree(tree: Tree, directory: Path, tolerates: Tolerates = of_one_run) -> Scenario:
    """Return the scenario of settings as they were written, with defaults filled in.

    Paths are relative to ``directory``. Raises as ``load_scenario``.
    """
    with_absolute_plugins(tree, directory)
    tree.values["channels"] = with_presets(tree.values.get("channels", {}), tree, directory)
    idle: list[IdleError] = []
    while True:
        try:
            return _settled(tree, directory, tuple(idle))
        except IdleError as refusal:
            if not tolerates(refusal.path, tree):
                raise
            leave_out(refusal.path, tree)
            idle.append(refusal)


def _settled(tree: Tree, directory: Path, idle: tuple[IdleError, ...]) -> Scenario:
    written = check(ScenarioModel, tree.values, tree)
    refuse_unknown_policies(tree)
    model = fill(written, directory, tree)
    machines = build_machines(model, tree)
    refuse_without_effect(model, machines, tree)
    refuse_unknown_eviction(model, tree)
    refuse_broken_plugins(tree)
    wiring = wire(model, machines, tree)
    settings = lower(model, machines, wiring, tree)
    resolved = resolve(model, machines, wiring.sections, left_to_hosts(machines, tree))
    return Scenario(model, settings, resolved, tree, gpu_capacity(written, model), idle)


def read_scenario(path: Path, regular: bool = False) -> bytes:
    """Return a scenario's bytes, at most one byte over the limit; ``-`` is standard input.

    With ``regular`` the file of a run's directory, in which nothing but a regular file is read.

    An empty file raises UsageError: a shell leaves it of a command that failed (``kvsim init > FILE``).
    """
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with open_regular(path) if regular else path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"scenario not found: {path}", hint=nearest_names(path)) from None
    except OSError as error:
        raise InputOutputError(f"cannot read the scenario: {error.strerror}", where=str(path)) from None
    if not data:
        hint = "did the command that wrote it fail? Without a scenario the defaults are simulated"
        raise UsageError(
            "an empty scenario", where=str(path), expected="settings, such as 'seed: 0'", hint=hint
        )
    return data


def nearest_names(path: Path) -> str:
    """Return a hint with the file names nearest to a missing one, or ""."""
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        return f"no directory {path.parent}" if not path.parent.is_dir() else ""
    close = close_matches(path.name, names, n=3)
    return f"did you mean {', '.join(close)}?" if close else ""
