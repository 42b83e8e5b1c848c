"""Engine classes that each replay mode reproduces, and the number of recorded rows behind each."""

from __future__ import annotations

import sys
from pathlib import Path

from kvcache_sim.base.output import write_new
from kvcache_sim.base.values import Value

_BEGIN = "<!-- engines: written by python -m kvcache_sim.policies.engine_modes -->\n"
_END = "<!-- end of engines -->\n"


class EngineMode(Value):
    """One mode: the engine's class that it reproduces, and the rows that this was measured on."""

    #: Name for ``--policy``, without a strategy.
    family: str
    engine: str
    classes: str
    #: Rows of integers recorded from the engine's own class, all reproduced.
    rows: int
    #: Generated adversarial streams among the recorded runs.
    streams: int
    #: Parts of the class without a row.
    not_covered: str

    @property
    def sentence(self) -> str:
        """Return the reproduced class and the number of rows as one line."""
        streams = f", {self.streams} made streams among them" if self.streams else ""
        rows = f"{self.rows} of {self.rows} rows{streams}" if self.rows else "driven by make oracles"
        return f"{self.engine} {self.classes}: {rows}"


ENGINE_MODES: tuple[EngineMode, ...] = (
    EngineMode("vllm", "vLLM 0.33.0", "KVCacheManager", 60, 0, "speculative decoding, LoRA and salted keys"),
    EngineMode(
        "vllm, with groups",
        "vLLM 0.33.0",
        "HybridKVCacheCoordinator",
        131,
        60,
        "hits of parts of a block, EAGLE; see the models it takes",
    ),
    EngineMode(
        "vllm-offload",
        "vLLM 0.33.0",
        "CPUOffloadingManager",
        12,
        0,
        "below the GPU's pool (`--policy vllm --cpu-chunks`), and with a secondary tier "
        "(`--secondary-tier`), it has no row (`make oracles` drives them and the connector)",
    ),
    EngineMode("sglang", "SGLang 0.5.23", "RadixCache", 29, 0, "the strategy priority"),
    EngineMode(
        "sglang-unified",
        "SGLang 0.5.23",
        "UnifiedRadixCache, with and without HiCache",
        93,
        60,
        "windows and states, sessions, several ranks, `buffer_only` host memory; the storage (`--storage`) "
        "and strategies mru, filo, priority and tlru have no row (`make oracles` drives them)",
    ),
    EngineMode(
        "lmcache",
        "LMCache 0.5.6",
        "LocalCPUBackend and LocalDiskBackend",
        70,
        60,
        "remote backends, layers one by one, chunks of outputs, a prompt on disk larger than the CPU tier "
        "(the engine waits forever; here its end is a miss)",
    ),
    EngineMode(
        "lmcache-server",
        "LMCache 0.5.7rc2",
        "L1Manager, its eviction, store and prefetch controllers, MockL2Adapter",
        0,
        0,
        "other adapters of its storage (L2), quotas, lazy offloading, cache groups; in a replay, below the "
        "GPU's pool; it has no row (`make oracles` drives it)",
    ),
)

#: Engines that no mode reproduces, with the reason.
NOT_COVERED: tuple[tuple[str, str], ...] = (
    ("TensorRT-LLM", "its reuse of parts of a block; its priorities are a plain policy here (`priority`)"),
    ("NVIDIA Dynamo KVBM", "its tiers and offload filters; tiers of a timed run come nearest"),
)


def engine_mode(family: str, has_groups: bool = False) -> EngineMode | None:
    """Return the mode of a policy's family; None if it is not an engine's."""
    name = f"{family}, with groups" if has_groups else family
    return next((mode for mode in ENGINE_MODES if mode.family == name), None)


def engines_markdown() -> str:
    """Return the table in Markdown, one row per mode, then the engines without a mode."""
    lines = ["| mode | equals | rows | of made streams | not covered |", "|---|---|---|---|---|"]
    lines += [
        f"| `{m.family}` | {m.engine} {m.classes} | {m.rows} | {m.streams} | {m.not_covered} |"
        for m in ENGINE_MODES
    ]
    lines += [f"| none | {engine} | 0 | 0 | {what} |" for engine, what in NOT_COVERED]
    return "\n".join(lines) + "\n"


def with_engines(page: str) -> str:
    """Return a page with the table between its two markers; raises ValueError if a marker is missing."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"the page has no {_BEGIN.strip()} … {_END.strip()}")
    return before + begin + engines_markdown() + end + after


if __name__ == "__main__":
    path = Path(sys.argv[1])
    write_new(path, with_engines(path.read_text()).encode(), overwrite=True)
