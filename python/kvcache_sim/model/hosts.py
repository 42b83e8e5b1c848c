"""Host presets: CPU time around a model's steps in a real deployment, each with its source."""

from __future__ import annotations

from typing import Any

from kvcache_sim.base.values import Value
from kvcache_sim.model.catalog import read_entry
from kvcache_sim.model.step_times import contains_host

#: Times that iterations timed in the engine contain, and sums of kernels do not.
OF_STEPS = frozenset(("launch_per_layer", "eager_chunks", "step_extra", "step_extra_per_layer"))


class HostSpec(Value):
    """Times of one deployment's host; runs timed in the engine's own process have no client times.

    None: not stated, so that the release or the scenario decides.

    ``step_overhead_ns`` is the time between two steps, plus ``step_overhead_per_sequence_ns`` for each
    sequence that decodes in the second step (measured range ``step_overhead_per_sequence_range_ns``).
    ``client_offset_ns`` is the time before a request reaches the scheduler, plus
    ``client_offset_per_token_ns`` for each prompt token (HTTP body, tokenizer, block hashes).
    ``copy_submit_ns`` is the CPU's time to submit a piece of a copy to or from the GPU, ``copy_gpu_share``
    the share of the GPU that such a copy uses (measured ranges ``copy_submit_range_ns`` and
    ``copy_gpu_share_range``). ``launch_per_layer_ns`` is the CPU's time to launch one layer's kernels without
    a CUDA graph (measured range ``launch_per_layer_range_ns``); ``eager_chunks``: so are all steps with a
    chunk, whatever its length. ``step_extra_ns``, plus ``step_extra_per_layer_ns`` a layer, is the time of
    every step on the GPU that sums of kernels lack. ``stage_launch_ns`` is the time of a pipeline stage's
    worker to launch a micro-batch (range ``stage_launch_range_ns``).
    """

    name: str
    source: str
    step_overhead_ns: int | None = None
    async_scheduling: str | None = None
    client_offset_ns: int | None = None
    client_offset_per_token_ns: int | None = None
    copy_submit_ns: int | None = None
    copy_gpu_share: float | None = None
    copy_submit_range_ns: tuple[int, ...] = ()
    copy_gpu_share_range: tuple[float, ...] = ()
    step_overhead_per_sequence_ns: int | None = None
    step_overhead_per_sequence_range_ns: tuple[int, ...] = ()
    launch_per_layer_ns: int | None = None
    launch_per_layer_range_ns: tuple[int, ...] = ()
    eager_chunks: bool | None = None
    step_extra_ns: int | None = None
    step_extra_per_layer_ns: int | None = None
    stage_launch_ns: int | None = None
    stage_launch_range_ns: tuple[int, ...] = ()

    @property
    def figures(self) -> dict[str, Any]:
        """The host's values by the keys of ``replica`` that they fill."""
        return {
            name.removesuffix("_ns"): value
            for name in self.__struct_fields__
            if name not in ("name", "source") and "_range" not in name
            if (value := getattr(self, name)) is not None
        }

    def figures_for(self, step_time: str) -> dict[str, Any]:
        """Return the figures that the rows of a source of step times do not contain already."""
        contained = OF_STEPS if contains_host(step_time) else frozenset()
        return {key: value for key, value in self.figures.items() if key not in contained}


def load_host(name: str) -> HostSpec:
    """Return a packaged host; UsageError with all names and the nearest one if there is no such host."""
    entry = read_entry("hosts", "host", name)
    ranges = {key: tuple(value) for key, value in entry.items() if key.endswith(("_range_ns", "_range"))}
    return HostSpec(name=name.lower(), **{**entry, **ranges})
