"""A GPU's published figures: memory, bandwidths, peak rates, and the rates that its kernels reach.

A kernel also has a fixed cost, however small it is.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.catalog import check_keys, entry_names, read_entry, read_toml
from kvcache_sim.model.format_rates import FormatRates, format_rates, refuse_small, smooth_maximum


class KernelRates(Value):
    """Shares of the peak rates, and fixed times in µs, of the kernels of a transformer layer.

    A GEMM takes ``gemm_us + ((bytes / (B·weights))^p + (operations / (F·compute))^p)^(1/p)`` with the memory
    bandwidth B and peak rate F of the GPU, attention of decodes ``attention_us + KV bytes / (B·kv)``, of a
    prefill chunk ``operations / (F·attention) + io · bytes of its queries, keys, values and output / B``.
    ``small_us`` is any other kernel of a CUDA graph (norm, rotary embedding, activation). ``gap_us`` is the
    gap between a kernel and the next, which needs its result: tables of single kernels do not include it, and
    whole steps on an H100 and a B300 take 0.4–1.4 µs per kernel longer than their kernels.

    ``mixed_kv_factor`` is the cost of reading KV in a step that also has a prefill chunk, relative to pure
    decode
    steps. It belongs to the attention backend: one kernel for all sequences without split KV (FlashAttention
    2:
    A100, Ada, RTX) makes it large, FlashAttention 3 (Hopper) and the TensorRT-LLM kernels (Blackwell) keep it
    near 1. ``mixed_kv_range`` is the measured range, or the assumed one.
    """

    source: str
    gemm_us: float
    weights_efficiency: float
    compute_efficiency: float
    exponent: float
    attention_us: float
    kv_efficiency: float
    attention_efficiency: float
    attention_io: float
    mixed_kv_factor: float
    mixed_kv_range: tuple[float, float]
    small_us: float = 2.4
    gap_us: float = 0.7

    def joined_ms(self, read_ms: NDArray[np.float64], compute_ms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the ms of GEMMs that at peak rates read for ``read_ms`` and compute for ``compute_ms``."""
        read_ms, compute_ms = read_ms / self.weights_efficiency, compute_ms / self.compute_efficiency
        return smooth_maximum(read_ms, compute_ms, self.exponent)


#: For GPUs without measured kernels: the medians of the seven measured ones.
UNMEASURED = KernelRates(
    source="assumed: medians of the measured GPUs",
    gemm_us=3.7,
    weights_efficiency=0.82,
    compute_efficiency=0.80,
    exponent=2.4,
    attention_us=12.2,
    kv_efficiency=0.88,
    attention_efficiency=0.60,
    attention_io=2.26,
    mixed_kv_factor=1.0,
    mixed_kv_range=(1.0, 2.9),
)


def kernel_rates(table: dict[str, Any] | None, where: str) -> KernelRates:
    """Return the rates of a GPU file's ``[kernels]`` table; missing keys have the values of unmeasured GPUs.

    Raises UsageError, naming ``where``, for an unknown key, a value of the wrong type, a share or factor not
    above 0, a time below 0, an exponent below 1, or an invalid range.
    """
    if table is None:
        return UNMEASURED
    number: dict[str, type | tuple[type, ...]] = dict.fromkeys(KernelRates.__struct_fields__, (int, float))
    check_keys(table, number | {"source": str, "mixed_kv_range": list}, where)
    refuse_small(table, where)
    limits = table.get("mixed_kv_range", list(UNMEASURED.mixed_kv_range))
    numbers = all(isinstance(limit, (int, float)) for limit in limits)
    if not numbers or len(limits) != 2 or not 0 < limits[0] <= limits[1]:
        raise UsageError("not a range", where=where, got=f"mixed_kv_range = {limits}", expected="[low, high]")
    return replace(UNMEASURED, **{**table, "mixed_kv_range": (float(limits[0]), float(limits[1]))})


#: ``sustained_compute`` of GPUs without rows: the H100's.
SUSTAINED_COMPUTE = 1.12


class GpuSpec(Value):
    """One GPU by its vendor's figures: dense rates, and links in one direction (0: no such link).

    ``kernels`` has the rates that its kernels reach, ``formats`` those by format; ``links`` names
    measured all-reduces among several GPUs.
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
    formats: FormatRates = FormatRates()
    links: str = ""
    #: Total memory reported by CUDA; 0: unknown.
    reported_memory_bytes: int = 0
    #: Total memory in MiB that the driver's tool prints, by which SGLang chooses defaults; 0: unknown.
    driver_memory_mib: int = 0
    #: Multiprocessors; 0: unknown.
    multiprocessors: int = 0
    #: Time of compute-bound kernels under a sustained load over that of kernels timed alone.
    sustained_compute: float = SUSTAINED_COMPUTE

    @property
    def link_bytes_per_s(self) -> int:
        """The rate of the fastest link between GPUs of one machine."""
        return self.nvlink_bytes_per_s or self.pcie_bytes_per_s

    @property
    def usable_bytes(self) -> int:
        """Total memory reported by CUDA, or an estimate: 1.5 % less than the vendor's figure."""
        return self.reported_memory_bytes or int(self.memory_bytes * 0.985)

    @property
    def smi_mib(self) -> int:
        """Total memory in MiB that the driver's tool prints, or an estimate: 0.6 % above CUDA's."""
        return self.driver_memory_mib or int(self.usable_bytes * 1.006) >> 20

    def flops(self, weight_dtype: str) -> int:
        """Return the peak rate for weights of a format, in operations per second.

        Eight bits run at the FP8 rate; four bits are unpacked to BF16, as engines do without an FP4 kernel.
        """
        return self.fp8_flops if weight_dtype in ("fp8", "mxfp8", "int8") else self.bf16_flops


def gpu_names() -> tuple[str, ...]:
    """Return the names of the packaged GPUs."""
    return entry_names("gpus")


def gpu_name(name: str) -> str:
    """Return the packaged name of a GPU's spelling, such as ``NVIDIA H100 80GB HBM3``, else ``name``."""
    return name if name in gpu_names() else _spellings().get(_plain(name), name)


#: Parts that are the same in names of different GPUs.
_COMMON = r"[^a-z0-9]|nvidia|geforce|tesla|quadro|amd|instinct|intel"


def spelled_gpus(text: str) -> list[str]:
    """Return the packaged GPUs that a text names; a short name (``L4``) counts only after its maker's."""
    words = re.findall(r"[A-Za-z0-9]+", text)
    spans = [words[start:end] for start in range(len(words)) for end in range(start + 1, start + 5)]
    found = {
        gpu_name(" ".join(span))
        for span in spans
        if (len(_plain(" ".join(span))) > 3 and not span[0].isdigit()) or not _plain(span[0])
    }
    return sorted(found & {*gpu_names()})


def _plain(name: str) -> str:
    return re.sub(_COMMON, "", name.lower())


@cache
def _spellings() -> dict[str, str]:
    named = {known: read_entry("gpus", "GPU", known).get("names", ()) for known in gpu_names()}
    return {_plain(one): known for known, names in named.items() for one in (known, *names)}


def load_gpu(name: str) -> GpuSpec:
    """Return a GPU: a packaged one by any spelling of its name, or a user's own file (``my.toml``).

    Raises UsageError for an unknown name with all names and the nearest one, for a file in one line with the
    missing key, or with a memory of the vendor's that the reported one replaces.
    """
    if not name.endswith(".toml"):
        return _packaged(gpu_name(name))
    table = read_toml(Path(name), "GPU")
    kernels = kernel_rates(table.pop("kernels", None), f"{name}: [kernels]")
    formats = format_rates(table.pop("gemms", {}), table.pop("experts", {}), f"{name}: ")
    separate = ("name", "kernels", "formats")
    known = {field.name: field for field in fields(GpuSpec) if field.name not in separate}
    types: dict[str, type | tuple[type, ...]] = {key: _TYPES[str(field.type)] for key, field in known.items()}
    check_keys(table, types, name)
    if table.get("reported_memory_bytes", 0) > 0:
        if "memory_bytes" in table:
            hint = "reported_memory_bytes is the memory that an engine sees: keep one of the two"
            raise UsageError(
                "memory_bytes has no effect", where=name, got=str(table["memory_bytes"]), hint=hint
            )
        table["memory_bytes"] = table["reported_memory_bytes"]
    for key, field in known.items():
        if key not in table and field.default is MISSING and key != "source":
            raise UsageError(f"no {key}", where=name, hint="kvsim gpus new writes a file to start from")
        least = 0 if key.startswith(_MAY_BE_ZERO) else 1
        if isinstance(table.get(key), int) and table[key] < least:
            raise UsageError(f"{key} is too small", where=name, got=str(table[key]))
    return GpuSpec(name=Path(name).stem, kernels=kernels, formats=formats, **{"source": name, **table})


@cache
def _packaged(name: str) -> GpuSpec:
    entry = read_entry("gpus", "GPU", name)
    entry.pop("names", None)
    kernels = kernel_rates(entry.pop("kernels", None), f"[kernels] of {name}")
    formats = format_rates(entry.pop("gemms", {}), entry.pop("experts", {}), f"{name}: ")
    return GpuSpec(name=name.lower(), kernels=kernels, formats=formats, **entry)


#: A GPU may have no NVLink, and figures that are unknown.
_MAY_BE_ZERO = ("nvlink", "reported", "driver", "multiprocessors")
_TYPES: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "float": (int, float)}
