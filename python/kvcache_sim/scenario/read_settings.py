"""A scenario's ``trace`` section as the reader's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcache_sim.scenario.trace_section import TraceSection

if TYPE_CHECKING:
    from kvcache_sim.workload.readers.settings import ReadSettings


def read_settings(section: TraceSection, keep_unknown: bool = False) -> ReadSettings:
    """Return how a scenario wants its trace read; with ``keep_unknown`` members that no column holds stay."""
    from kvcache_sim.workload.readers.settings import ReadSettings
    from kvcache_sim.workload.synthetic_prefixes import PrefixAssumption

    assumed = section.synthesise_prefixes
    prefixes = None if assumed is None else PrefixAssumption(assumed.turns, assumed.pause, assumed.seed)
    return ReadSettings(
        block_size=section.block_size,
        on_bad_row=section.on_bad_row,
        format=section.format,
        time_order=section.time_order,
        bytes_per_token=section.bytes_per_token,
        tokenizer=section.tokenizer,
        keep_unknown=keep_unknown,
        extra_keys=tuple(section.extra_keys),
        prefixes=prefixes,
    )
