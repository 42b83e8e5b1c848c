"""The links that a scenario assumes: its channels, those of equal figures together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from kvcache_sim.model.channels import ChannelSpec, channel_names, load_channel
from kvcache_sim.model.stated_errors import around
from kvcache_sim.report.intervals.assumption import Assumption, interval
from kvcache_sim.scenario.load import Scenario
from kvcache_sim.serving.settings import ClusterSettings

#: Usual error of a link that states none, in per cent of a transfer's time.
USUAL_LINK_PERCENT = 20.0

Figures = tuple[int, int, int, int, int]


def link_assumptions(scenario: Scenario) -> Iterator[Assumption]:
    """Yield the links in use; channels of equal figures vary together."""
    sections = tuple(scenario.resolved["channels"])
    alike: dict[Figures, list[str]] = {}
    for channel in channels_of(scenario.settings):
        name = section_of(channel.name, sections)
        names = alike.setdefault(figures_of(channel), [])
        if name and name not in names:
            names.append(name)
    for figures, names in alike.items():
        if not names:
            continue
        preset = preset_of(figures)
        source = "figures of no preset" if preset is None else preset.name
        percent = None if preset is None else preset.error_percent
        stated = None if percent is None else around(percent)
        said = f"{source} on its own measurements" if stated is not None else f"{source} states no error"
        factors, said, is_stated = interval(stated, said, USUAL_LINK_PERCENT)
        apply = partial(_with_links, names, sections)
        yield Assumption(f"link: {', '.join(names)}", factors, said, is_stated, apply, kind="link")


def with_channels(
    settings: ClusterSettings,
    names: list[str],
    sections: tuple[str, ...],
    changed: Callable[[ChannelSettings], ChannelSettings],
) -> ClusterSettings:
    """Return the settings with a function applied to each channel of the named sections."""

    def of(channel: ChannelSettings) -> ChannelSettings:
        return changed(channel) if section_of(channel.name, sections) in names else channel

    def between(network: NetworkSettings) -> NetworkSettings:
        return replace(network, default=of(network.default))

    return replace(
        settings,
        channels={name: of(channel) for name, channel in settings.channels.items()},
        network=between(settings.network),
        handover=replace(settings.handover, network=between(settings.handover.network)),
    )


def _with_links(
    names: list[str], sections: tuple[str, ...], settings: ClusterSettings, factor: float
) -> ClusterSettings:
    """Return the settings with every transfer over these channels so many times as long."""

    def slower(channel: ChannelSettings) -> ChannelSettings:
        return replace(
            channel,
            bandwidth_bytes_per_s=max(1, round(channel.bandwidth_bytes_per_s / factor)),
            latency_ns=round(channel.latency_ns * factor),
            piece_overhead_ns=round(channel.piece_overhead_ns * factor),
            piece_gap_ns=round(channel.piece_gap_ns * factor),
        )

    return with_channels(settings, names, sections, slower)


def channels_of(settings: ClusterSettings) -> Iterable[ChannelSettings]:
    """Return every channel of a cluster."""
    return (*settings.channels.values(), settings.network.default, settings.handover.network.default)


def section_of(channel: str, sections: tuple[str, ...]) -> str:
    """Return the section that a channel comes from, ``""`` for none: one a machine is called ``NAME-0``."""
    fitting = [name for name in sections if channel == name or channel.startswith(f"{name}-")]
    return max(fitting, key=len, default="")


def figures_of(channel: ChannelSettings | ChannelSpec) -> Figures:
    """Return the figures of a channel: its rate, latency and costs of a piece."""
    pieces = channel.piece_overhead_ns, channel.piece_gap_ns, channel.piece_submit_ns
    return channel.bandwidth_bytes_per_s, channel.latency_ns, *pieces


def preset_of(figures: Figures) -> ChannelSpec | None:
    """Return the packaged preset with these figures, or of so many such links together.

    A resolved scenario no longer names it.
    """
    rate, *others = figures
    for spec in map(load_channel, channel_names()):
        one, *rest = figures_of(spec)
        if others == rest and rate % one == 0:
            return spec
    return None
