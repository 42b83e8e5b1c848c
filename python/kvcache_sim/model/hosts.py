"""Host presets: CPU time around a model's steps in a real deployment, each with its source."""

from __future__ import annotations

from typing import Any

from kvcache_sim.base.values import Value
from kvcache_sim.model.catalog import read_entry


class HostSpec(Value):
    """Times of one deployment's host; runs timed in the engine's own process have no client times.

    ``step_overhead_ns`` is the time between two steps, plus ``step_overhead_per_sequence_ns`` for each
    sequence that decodes in the second step (measured range ``step_overhead_per_sequence_range_ns``).
    ``client_offset_ns`` is the time before a request reaches the scheduler, plus
    ``client_offset_per_token_ns`` for each prompt token (HTTP body, tokenizer, block hashes).
    ``copy_submit_ns`` is the CPU's time to submit a piece of a copy to or from the GPU, ``copy_gpu_share``
    the share of the GPU that such a copy uses (measured ranges ``copy_submit_range_ns`` and
    ``copy_gpu_share_range``). ``launch_per_layer_ns`` is the CPU's time to launch one layer's kernels without
    a CUDA graph (measured range ``launch_per_layer_range_ns``).
    """

    name: str
    source: str
    step_overhead_ns: int
    async_scheduling: str
    client_offset_ns: int
    client_offset_per_token_ns: int
    copy_submit_ns: int = 0
    copy_gpu_share: float = 0.0
    copy_submit_range_ns: tuple[int, ...] = ()
    copy_gpu_share_range: tuple[float, ...] = ()
    step_overhead_per_sequence_ns: int = 0
    step_overhead_per_sequence_range_ns: tuple[int, ...] = ()
    launch_per_layer_ns: int = 0
    launch_per_layer_range_ns: tuple[int, ...] = ()

    @property
    def figures(self) -> dict[str, Any]:
        """The host's values by the keys of ``replica`` that they fill."""
        return {
            name.removesuffix("_ns"): getattr(self, name)
            for name in self.__struct_fields__
            if name not in ("name", "source") and "_range" not in name
        }


def load_host(name: str) -> HostSpec:
    """Return a packaged host; UsageError with all names and the nearest one if there is no such host."""
    entry = read_entry("hosts", "host", name)
    ranges = {key: tuple(value) for key, value in entry.items() if key.endswith(("_range_ns", "_range"))}
    return HostSpec(name=name.lower(), **{**entry, **ranges})
