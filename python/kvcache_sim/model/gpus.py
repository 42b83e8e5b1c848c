"""A GPU's published figures: memory, bandwidths and peak rates."""

from __future__ import annotations

from dataclasses import dataclass

from kvcache_sim.model.catalog import entry_names, read_entry


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One GPU as its maker states it: dense rates, and links in one direction (0: no such link)."""

    name: str
    source: str
    memory_bytes: int
    memory_bytes_per_s: int
    bf16_flops: int
    fp8_flops: int
    pcie_bytes_per_s: int
    nvlink_bytes_per_s: int

    def flops(self, weight_bytes: int) -> int:
        """Return the peak rate for weights of one byte (FP8) or two (BF16), in operations a second."""
        return self.fp8_flops if weight_bytes == 1 else self.bf16_flops


def gpu_names() -> tuple[str, ...]:
    """Return the names of the packaged GPUs."""
    return entry_names("gpus")


def load_gpu(name: str) -> GpuSpec:
    """Return a packaged GPU; UsageError with the names and the nearest one when there is no such GPU."""
    return GpuSpec(name=name.lower(), **read_entry("gpus", "GPU", name))
