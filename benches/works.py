"""The works on which two builds are compared: each a trace, or none, and settings of ``kvsim simulate``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CONVERSATION = "conversation_trace.jsonl"
WEKA_AGENTIC = "weka_agentic_dev.jsonl.gz"
WEKA_COMPOSITE = "weka_composite_dev_K16_b512.jsonl.gz"

#: ``few``: seconds. ``many``: a million requests and more, minutes to hours.
Size = Literal["few", "many"]


@dataclass(frozen=True, slots=True)
class Work:
    """One row of the table."""

    name: str
    settings: tuple[str, ...]
    #: A file of ``shared/traces``; "" for a generated workload.
    trace: str = CONVERSATION
    size: Size = "few"
    #: Further options.
    options: tuple[str, ...] = ()


def _gpu(blocks: int, machines: int = 1, router: str = "") -> tuple[str, ...]:
    named = (f"router.policy={router}",) if router else ()
    return (f"tiers.gpu.capacity={blocks} blocks", f"cluster.machines={machines}", *named)


def _tiers(scale: int = 1) -> tuple[str, ...]:
    lower = (f"tiers.cpu.capacity={4000 * scale} blocks", f"tiers.disk.capacity={16000 * scale} blocks")
    return (*_gpu(1000 * scale, 4), *lower)


_FAIR = tuple(
    f"channels.{name}.sharing=fair" for name in ("gpu-to-cpu", "cpu-to-gpu", "cpu-to-disk", "disk-to-cpu")
)
_LOADS_FIRST = (
    "channels.pcie.preset=pcie5-x16",
    "channels.pcie.edges=[gpu->cpu, cpu->gpu]",
    "channels.pcie.priority=loads-first",
    "channels.nvme.preset=nvme",
    "channels.nvme.edges=[cpu->disk, disk->cpu]",
    "channels.nvme.priority=loads-first",
)
_B16 = "cache.block_size=16"
_POOLS = (
    "tiers.gpu.capacity=4096 blocks",
    "pools.prefill=4",
    "pools.decode=4",
    "router.policy=prefill-cost",
)
_AGENTIC = ("cache.block_size=64", "tiers.cpu.capacity=256GiB")
_MILLION = ("workload.kind=diverse", "workload.requests=1000000")

WORKS = (
    Work("one request: start-up", (*_gpu(16384), "workload.kind=diverse", "workload.requests=1"), ""),
    Work("one machine, block 512", _gpu(16384)),
    Work("four machines, longest-prefix, block 512", _gpu(16384, 4, "longest-prefix")),
    Work("four machines, longest-prefix, block 16", (*_gpu(32000, 4, "longest-prefix"), _B16)),
    Work("16 machines, prefill-cost", _gpu(4096, 16, "prefill-cost")),
    Work("4 + 4 pools", _POOLS),
    Work("4 + 4 pools, layer by layer", (*_POOLS, "handover.transfer=layer-by-layer")),
    Work("three tiers x 4, block 512, write back", _tiers()),
    Work("three tiers x 4, block 512, write through", (*_tiers(), "write.policy=through")),
    Work("three tiers x 4, block 512, read by each other", (*_tiers(), "fetch.lookup=cluster")),
    Work("three tiers x 4, block 512, fair channels", (*_tiers(), *_FAIR)),
    Work("three tiers x 4, block 512, loads first", (*_tiers(), *_LOADS_FIRST)),
    Work("three tiers x 4, block 16, write back", (*_tiers(32), _B16)),
    Work("three tiers x 4, block 16, write through", (*_tiers(32), _B16, "write.policy=through")),
    Work("1,024 machines, longest-prefix", _gpu(1000, 1024, "longest-prefix")),
    Work("6.3 M block references", _gpu(16384), WEKA_COMPOSITE),
    Work("agentic, block 64", _AGENTIC, WEKA_AGENTIC),
    Work("agentic, block 64, --causes", _AGENTIC, WEKA_AGENTIC, options=("--causes",)),
    Work("a million generated, one machine", (*_gpu(16384), *_MILLION), "", "many"),
    Work("a million generated, three tiers x 4", (*_tiers(), *_MILLION), "", "many"),
)
