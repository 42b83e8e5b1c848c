"""Host presets: what lies around a model's steps on the CPU of a real deployment, each with its source."""

from __future__ import annotations

from dataclasses import dataclass

from kvcache_sim.model.catalog import entry_names, read_entry


@dataclass(frozen=True, slots=True)
class HostSpec:
    """Times of one deployment's host; runs timed in the engine's own process have none of the client's.

    ``step_overhead_ns`` lies between two steps, ``client_offset_ns`` before a request reaches the scheduler,
    with ``client_offset_per_token_ns`` more for each prompt token (HTTP body, tokeniser, block hashes).
    """

    name: str
    source: str
    step_overhead_ns: int
    async_scheduling: str
    client_offset_ns: int
    client_offset_per_token_ns: int


def host_names() -> tuple[str, ...]:
    """Return the names of the packaged hosts."""
    return entry_names("hosts")


def load_host(name: str) -> HostSpec:
    """Return a packaged host; UsageError with the names and the nearest one when there is no such host."""
    return HostSpec(name=name.lower(), **read_entry("hosts", "host", name))
