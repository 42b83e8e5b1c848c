"""What copies to and from the GPU are assumed to cost: their submission, and their share of the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.model.stated_errors import Factors
from kvcache_sim.report.sensitivity.assumption import Assumption, host_interval, interval
from kvcache_sim.report.sensitivity.links import (
    Figures,
    channels_of,
    figures_of,
    preset_of,
    section_of,
    with_channels,
)
from kvcache_sim.scenario.load import Scenario
from kvcache_sim.scenario.lowering import with_host
from kvcache_sim.scenario.schema import MachineSection
from kvcache_sim.serving.settings import ClusterSettings

#: Taken where nothing is stated, in per cent.
USUAL_COPY_PERCENT = 20.0
#: Keys of a replica that copies cost its steps, their words, and the unit in a host's keys.
_OF_STEPS = (
    ("copy_submit", "CPU time to submit copies", "_ns"),
    ("copy_gpu_share", "GPU share of copies", ""),
)


def copy_assumptions(scenario: Scenario, machines: tuple[MachineSection, ...]) -> Iterator[Assumption]:
    """Yield how pieces are submitted on links that count them, then what copies cost the steps."""
    yield from _submissions(scenario)
    yield from _costs(machines)


def _submissions(scenario: Scenario) -> Iterator[Assumption]:
    sections = tuple(scenario.resolved["channels"])
    overlapped: list[str] = []
    ahead: dict[Figures, list[str]] = {}
    for channel in channels_of(scenario.settings):
        name = section_of(channel.name, sections)
        if not name:
            continue
        if channel.piece_submit_ns:
            names = ahead.setdefault(figures_of(channel), [])
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
        yield Assumption(what, Factors(1.0, 2.0), said, True, apply)
    for figures, names in ahead.items():
        preset = preset_of(figures)
        stated = None
        if preset is not None and preset.piece_submit_range_ns:
            low, high = preset.piece_submit_range_ns
            stated = Factors(low / preset.piece_submit_ns, high / preset.piece_submit_ns)
        source = f"range of {preset.name}" if stated and preset else "as given it states no error"
        factors, said, is_stated = interval(stated, source, USUAL_COPY_PERCENT)
        apply = partial(_with_submission, names, sections)
        yield Assumption(f"submission of pieces: {', '.join(names)}", factors, said, is_stated, apply)


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


def _costs(machines: tuple[MachineSection, ...]) -> Iterator[Assumption]:
    for key, what, unit in _OF_STEPS:
        found: dict[tuple[str, float], list[int]] = {}
        for index, machine in enumerate(machines):
            value = getattr(with_host(machine.replica), key)
            if value and not machine.replica.instant:
                found.setdefault((machine.replica.host or "", value), []).append(index)
        for (host, value), indices in found.items():
            source = f"between both directions and sizes of {host}"
            measured = host_interval(host, (key, unit), value, (source, USUAL_COPY_PERCENT))
            of = f" of {host}" if len(found) > 1 else ""
            yield Assumption(f"{what}{of}", *measured, partial(_with_cost, indices, key))


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
