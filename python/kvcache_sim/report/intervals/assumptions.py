"""Assumptions of a scenario: step times, KV memory of its GPUs, links, and costs of copies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from msgspec import structs

from kvcache_sim.base.tiers import COMPUTE, TIERS
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.model.adjusted import ScaledStepTime, StepPart, WithSequenceTime
from kvcache_sim.model.stated_errors import Factors, around, stated_step_errors
from kvcache_sim.report.intervals.assumption import (
    Assumption,
    HostFigure,
    UsualError,
    host_interval,
    interval,
)
from kvcache_sim.report.intervals.links import (
    Figures,
    channels_of,
    figures_of,
    link_assumptions,
    preset_of,
    section_of,
    with_channels,
)
from kvcache_sim.scenario.gpu_memory import capacity_uncertainty
from kvcache_sim.scenario.load import Scenario
from kvcache_sim.scenario.lowering import with_host
from kvcache_sim.scenario.machines import build_machines
from kvcache_sim.scenario.release_defaults import release_of, written_keys
from kvcache_sim.scenario.schema import MachineSection
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings

#: Usual error where none is stated, in per cent.
USUAL_COPY_PERCENT = 20.0
#: Keys of a replica that copies cost its steps, their words, and the unit in a host's keys.
_OF_STEPS = (
    ("copy_submit", "CPU time to submit copies", "_ns"),
    ("copy_gpu_share", "GPU share of copies", ""),
)


def copy_assumptions(scenario: Scenario, machines: tuple[MachineSection, ...]) -> Iterator[Assumption]:
    """Yield the submission of pieces on links that count them, then the costs of copies to steps."""
    yield from _submissions(scenario)
    yield from _costs(machines)


def _submissions(scenario: Scenario) -> Iterator[Assumption]:
    sections = tuple(scenario.resolved["channels"])
    overlapped: list[str] = []
    lookahead: dict[Figures, list[str]] = {}
    for channel in channels_of(scenario.settings):
        name = section_of(channel.name, sections)
        if not name:
            continue
        if channel.piece_submit_ns:
            names = lookahead.setdefault(figures_of(channel), [])
        elif channel.piece_overhead_ns:
            names = overlapped
        else:
            continue
        if name not in names:
            names.append(name)
    if overlapped:
        said = "pieces submitted while others go (1) … before a copy's first byte (2), as a lone copy's are"
        apply = partial(_with_submission_first, overlapped, sections)
        what = f"submission of pieces: {', '.join(overlapped)}"
        yield Assumption(what, Factors(1.0, 2.0), said, True, apply, kind="link part")
    for figures, names in lookahead.items():
        preset = preset_of(figures)
        stated = None
        if preset is not None and preset.piece_submit_range_ns:
            low, high = preset.piece_submit_range_ns
            stated = Factors(low / preset.piece_submit_ns, high / preset.piece_submit_ns)
        source = f"range of {preset.name}" if stated and preset else "as given it states no error"
        factors, said, is_stated = interval(stated, source, USUAL_COPY_PERCENT)
        apply = partial(_with_submission, names, sections)
        what = f"submission of pieces: {', '.join(names)}"
        yield Assumption(what, factors, said, is_stated, apply, kind="link part")


def _with_submission_first(
    names: list[str], sections: tuple[str, ...], settings: ClusterSettings, factor: float
) -> ClusterSettings:
    """Return the settings with factor - 1 of the least time of a piece spent before the first byte."""

    def changed(channel: ChannelSettings) -> ChannelSettings:
        first = round((factor - 1) * channel.piece_overhead_ns)
        rest = channel.piece_overhead_ns - first
        return replace(channel, piece_submit_ns=channel.piece_submit_ns + first, piece_overhead_ns=rest)

    return with_channels(settings, names, sections, changed)


def _with_submission(
    names: list[str], sections: tuple[str, ...], settings: ClusterSettings, factor: float
) -> ClusterSettings:
    def changed(channel: ChannelSettings) -> ChannelSettings:
        return replace(channel, piece_submit_ns=round(channel.piece_submit_ns * factor))

    return with_channels(settings, names, sections, changed)


def _of_host(host: str, hosts: int) -> str:
    """Return the words for the machines of a host preset; "" where all machines are of one."""
    return f" of {host or 'other machines'}" if hosts > 1 else ""


def _costs(machines: tuple[MachineSection, ...]) -> Iterator[Assumption]:
    for key, what, unit in _OF_STEPS:
        found: dict[tuple[str, float], list[int]] = {}
        for index, machine in enumerate(machines):
            value = getattr(machine.replica, key)
            if value and not machine.replica.instant:
                found.setdefault((machine.replica.host or "", value), []).append(index)
        for (host, value), indices in found.items():
            usual = UsualError(f"between both directions and sizes of {host}", USUAL_COPY_PERCENT)
            measured = host_interval(host, HostFigure(key, unit), value, usual)
            of = _of_host(host, len(found))
            apply = partial(_with_cost, indices, key)
            yield Assumption(f"{what}{of}", *measured, apply, kind="step part")


def _with_cost(indices: list[int], key: str, settings: ClusterSettings, factor: float) -> ClusterSettings:
    machines = list(settings.machines)
    for index in indices:
        replica = machines[index].replica
        if key == "copy_submit":
            changed = replace(replica, copy_submit_ns=round(replica.copy_submit_ns * factor))
        else:
            changed = replace(replica, copy_gpu_share=min(replica.copy_gpu_share * factor, 1.0))
        machines[index] = replace(machines[index], replica=changed)
    return replace(settings, machines=tuple(machines))


#: Usual errors where none is stated, in per cent: of step times, of given blocks.
USUAL_STEP_PERCENT = 10.0
USUAL_CAPACITY_PERCENT = 10.0


def assumptions(scenario: Scenario) -> list[Assumption]:
    """Return every assumption of a scenario that has an interval: step times, capacity, links, copies."""
    built = build_machines(scenario.model, scenario.tree)
    machines = tuple(
        structs.replace(machine, replica=with_host(machine.replica, written_keys(scenario.tree, index)))
        for index, machine in enumerate(built)
    )
    return [
        *_step_times(machines),
        *_host_times(machines),
        *_launch_times(machines),
        *_capacity(scenario, machines),
        *link_assumptions(scenario),
        *copy_assumptions(scenario, machines),
    ]


def _step_times(machines: tuple[MachineSection, ...]) -> Iterator[Assumption]:
    """Yield the factors of each step-time model in use; without service time there are none."""
    named: dict[tuple[str, str], list[int]] = {}
    for index, machine in enumerate(machines):
        if not machine.replica.instant:
            engine = release_of(machine.replica).engine
            named.setdefault((machine.replica.step_time, engine), []).append(index)
    for (name, engine), indices in named.items():
        errors = stated_step_errors(name, engine)
        if errors is None:
            continue
        of = f" of {name}" if len(named) > 1 else ""
        parts: tuple[tuple[StepPart, str, Factors | None], ...] = (
            ("decode", "decode steps", errors.decode),
            ("chunk", "steps with a prefill chunk", errors.chunk),
        )
        for part, what, stated in parts:
            factors, said, is_stated = interval(stated, errors.source, USUAL_STEP_PERCENT)
            apply = partial(_with_steps, indices, part)
            yield Assumption(
                f"step time: {what}{of}", factors, said, is_stated, apply, error=f"steps of {name}"
            )
        if errors.mixed_kv is not None and errors.mixed_kv.high > errors.mixed_kv.low:
            said = "the range of the GPU's attention backend; the set has no such step"
            apply = partial(_with_steps, indices, "mixed_kv")
            what = f"step time: KV read alongside a chunk{of}"
            yield Assumption(what, errors.mixed_kv, said, True, apply, kind="step part")


def _host_times(machines: tuple[MachineSection, ...]) -> Iterator[Assumption]:
    """Yield the host's time for each sequence of a step, where a host or the scenario has one."""
    found: dict[tuple[str, int], list[int]] = {}
    for index, machine in enumerate(machines):
        replica = machine.replica
        if replica.step_overhead_per_sequence and replica.async_scheduling == "none":
            key = (machine.replica.host or "", replica.step_overhead_per_sequence)
            found.setdefault(key, []).append(index)
    for (host, each_ns), indices in found.items():
        of = _of_host(host, len(found))
        usual = UsualError("slopes of the measured batches", USUAL_STEP_PERCENT)
        measured = host_interval(host, HostFigure("step_overhead_per_sequence", "_ns"), each_ns, usual)
        apply = partial(_with_sequence_time, indices, each_ns)
        yield Assumption(f"host time a sequence{of}", *measured, apply, kind="step part")


def _launch_times(machines: tuple[MachineSection, ...]) -> Iterator[Assumption]:
    """Yield the CPU's time to launch a layer, where a host or the scenario has one."""
    found: dict[tuple[str, int], list[int]] = {}
    for index, machine in enumerate(machines):
        layer_ns = machine.replica.launch_per_layer
        if layer_ns and not machine.replica.instant:
            found.setdefault((machine.replica.host or "", layer_ns), []).append(index)
    for (host, layer_ns), indices in found.items():
        of = _of_host(host, len(found))
        usual = UsualError("what single steps showed", USUAL_STEP_PERCENT)
        measured = host_interval(host, HostFigure("launch_per_layer", "_ns"), layer_ns, usual)
        apply = partial(_with_steps, indices, "launch")
        yield Assumption(f"launch of a step past its graphs{of}", *measured, apply, kind="step part")


def _with_sequence_time(
    indices: list[int], each_ns: int, settings: ClusterSettings, factor: float
) -> ClusterSettings:
    machines = list(settings.machines)
    for index in indices:
        machine = machines[index]
        step_time = WithSequenceTime(machine.step_time, round((factor - 1) * each_ns))
        machines[index] = replace(machine, step_time=step_time)
    return replace(settings, machines=tuple(machines))


def _with_steps(
    indices: list[int], part: StepPart, settings: ClusterSettings, factor: float
) -> ClusterSettings:
    machines = list(settings.machines)
    for index in indices:
        step_time = machines[index].step_time
        scaled = step_time if isinstance(step_time, ScaledStepTime) else ScaledStepTime(step_time)
        machines[index] = replace(machines[index], step_time=scaled.times(part, factor))
    return replace(settings, machines=tuple(machines))


def _capacity(scenario: Scenario, machines: tuple[MachineSection, ...]) -> Iterator[Assumption]:
    """Yield the capacity of the GPUs, equal ones together; an unbounded GPU has no interval."""
    alike: dict[float | None, list[int]] = {}
    for index, (section, settings) in enumerate(zip(machines, scenario.settings.machines, strict=True)):
        blocks = settings.tiers[0].capacity_blocks
        if blocks is None:
            continue
        share = None
        if not section.replica.instant:
            share = capacity_uncertainty(scenario.model, section.replica, blocks)
        alike.setdefault(share, []).append(index)
    for share, indices in alike.items():
        of = f" of machines {indices[0]}, …" if len(alike) > 1 else ""
        source = "found from memory" if share is not None else "blocks as given state no error"
        stated = None if share is None else around(100 * share)
        factors, said, is_stated = interval(stated, source, USUAL_CAPACITY_PERCENT)
        name = f"KV capacity of the {TIERS[COMPUTE]}{of}"
        apply = partial(_with_capacity, indices)
        yield Assumption(name, factors, said, is_stated, apply, False, "capacity")


def _with_capacity(indices: list[int], settings: ClusterSettings, factor: float) -> ClusterSettings:
    machines = list(settings.machines)
    for index in indices:
        machines[index] = _roomier(machines[index], factor)
    return replace(settings, machines=tuple(machines))


def _roomier(machine: MachineSettings, factor: float) -> MachineSettings:
    gpu = machine.tiers[0]
    assert gpu.capacity_blocks is not None
    blocks = max(1, round(gpu.capacity_blocks * factor))
    return replace(machine, tiers=(replace(gpu, capacity_blocks=blocks), *machine.tiers[1:]))
