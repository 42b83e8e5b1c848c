"""A GPU's published figures: memory, bandwidths and peak rates."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path

from kvcache_sim.errors import UsageError
from kvcache_sim.model.catalog import check_keys, entry_names, read_entry, read_toml
from kvcache_sim.model.kernel_rates import UNMEASURED, KernelRates, kernel_rates
from kvcache_sim.values import Value


class GpuSpec(Value):
    """One GPU as its maker states it: dense rates, and links in one direction (0: no such link).

    ``kernels`` is what its kernels reach of that; ``links`` names measured all-reduces among several of it.
    """

    name: str
    source: str
    memory_bytes: int
    memory_bytes_per_s: int
    bf16_flops: int
    fp8_flops: int
    pcie_bytes_per_s: int
    nvlink_bytes_per_s: int
    kernels: KernelRates = UNMEASURED
    links: str = ""
    #: What CUDA reports as the whole memory; 0: not known.
    reported_memory_bytes: int = 0

    @property
    def usable_bytes(self) -> int:
        """What CUDA reports as the whole memory, or about that: 1.5 % less than the maker states."""
        return self.reported_memory_bytes or int(self.memory_bytes * 0.985)

    def flops(self, weight_dtype: str) -> int:
        """Return the peak rate for weights of a format, in operations a second.

        Eight bits run at the FP8 rate; four are unpacked to BF16, as engines do where there is no FP4 kernel.
        """
        return self.fp8_flops if weight_dtype in ("fp8", "mxfp8", "int8") else self.bf16_flops


def gpu_names() -> tuple[str, ...]:
    """Return the names of the packaged GPUs."""
    return entry_names("gpus")


def load_gpu(name: str) -> GpuSpec:
    """Return a GPU: a packaged one by name, or a user's own file (``my.toml``).

    Raises UsageError for an unknown name with the names and the nearest one, for a file in one line that says
    what is missing.
    """
    if not name.endswith(".toml"):
        entry = read_entry("gpus", "GPU", name)
        kernels = kernel_rates(entry.pop("kernels", None), f"[kernels] of {name}")
        return GpuSpec(name=name.lower(), kernels=kernels, **entry)
    table = read_toml(Path(name), "GPU")
    kernels = kernel_rates(table.pop("kernels", None), f"{name}: [kernels]")
    known = {field.name: field for field in fields(GpuSpec) if field.name not in ("name", "kernels")}
    types: dict[str, type | tuple[type, ...]] = {key: _TYPES[str(field.type)] for key, field in known.items()}
    check_keys(table, types, name)
    for key, field in known.items():
        if key not in table and field.default is MISSING and key != "source":
            raise UsageError(f"no {key}", where=name, hint="kvsim gpus new writes a file to start from")
        least = 0 if key.startswith(_MAY_BE_ZERO) else 1
        if isinstance(table.get(key), int) and table[key] < least:
            raise UsageError(f"{key} is too small", where=name, got=str(table[key]))
    return GpuSpec(name=Path(name).stem, kernels=kernels, **{"source": name, **table})


#: A GPU may have no NVLink.
_MAY_BE_ZERO = ("nvlink", "reported")
_TYPES: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "float": (int, float)}
