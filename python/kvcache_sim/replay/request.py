"""Cache decisions without time: a trace's requests in file order through one cache, timestamps ignored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.workload.trace import Trace

#: Tokens that a request of n prompt tokens fills: the prompt (n), what an engine computes
#: (n + output - 1: the last token's KV is never needed), or everything (n + output).
Outputs = Literal["prompt", "computed", "all"]
#: Output modes as the oracle rows abbreviate them.
OUTPUT_MODES: dict[Outputs, str] = {"prompt": "P", "computed": "PO1", "all": "PO"}
#: End of a request's blocks that is released, and may be evicted, first.
PromptEnd = Literal["tail", "root"]
#: Use of a partial last id: dropped, as engines do, or kept as a block.
LastPartial = Literal["drop", "keep"]
#: Marks the hits of a rejected request, whose tokens do not fit.
REJECTED = -1
#: Leaf first behind a prefix look-up, or a plain cache of objects without prefixes.
Discipline = Literal["prefix", "flat"]


@dataclass(frozen=True, slots=True)
class StorageCapacity:
    """HiCache's storage: its pages (None: unbounded), and the fewest tokens worth a prefetch."""

    blocks: int | None
    #: SGLang's ``prefetch_threshold``.
    prefetch_threshold_tokens: int = 256


#: Tokens of a step, vLLM's default.
STEP_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """One replay: the trace, its block size, the capacities and the overlap of requests.

    ``block_size_tokens`` divides the trace's. ``window`` requests overlap: one ends when that many run;
    0 means one after another.
    """

    trace: Trace
    block_size_tokens: int
    capacity_blocks: int
    window: int = 0
    outputs: Outputs = "prompt"
    touch_from: PromptEnd = "tail"
    last_partial: LastPartial = "drop"
    #: Offers after which a key is stored (vLLM's ``store_threshold``); below 2 every key is.
    store_threshold: int = 0
    #: Give output blocks the ids that the session's next turn shows for them (semantics 1).
    reuse_outputs: bool = False
    #: Count every missed block under its cause, and give a row a request.
    explain: bool = False
    #: Pages on the host and when nodes are written there (SGLang's HiCache); "" is no host tier.
    host_blocks: int = 0
    write_policy: str = ""
    #: Storage below the host.
    storage: StorageCapacity | None = None
    #: Blocks of vLLM's CPU offloading tier below the pool, those of a chunk, and its policy.
    cpu_blocks: int = 0
    chunk_blocks: int = 1
    cpu_policy: str = "lru"
    #: True if a secondary tier, which keeps every block, is below vLLM's CPU tier.
    secondary: bool = False
    #: Tokens of a step, after which computed blocks are offered to vLLM's CPU tier, or LMCache's server.
    step_tokens: int = STEP_TOKENS
    #: Chunks of a disk tier below the capacity (LMCache).
    disk_blocks: int = 0
    #: A prefix tree, or a flat stream of blocks, as the policy's input.
    discipline: Discipline = "prefix"
    #: The groups that ``vllm`` replays, where a model has windows or states; a group has a block of its own.
    groups: GroupSettings | None = None


def refuse_lower_tiers(request: ReplayRequest, policy: str) -> None:
    """Raise UsageError for lower tiers, which only engines with tiers of their own have."""
    given = {
        "--host-capacity": request.host_blocks != 0,
        "--write-policy": request.write_policy != "",
        "--storage": request.storage is not None,
        "--disk-chunks": request.disk_blocks != 0,
        "--cpu-chunks": request.cpu_blocks != 0,
        "--secondary-tier": request.secondary,
    }
    for option in (option for option, is_given in given.items() if is_given):
        raise UsageError(f"has no effect with --policy {policy}", where=option)


#: A replay's figures under the names of the oracle rows: integers, digests and rates, ready for JSON.
ReplayResult = dict[str, Any]
#: Runs one replay; the text is the variant after the family's colon (``lru`` of ``sglang:lru``), or "".
Replayer = Callable[[ReplayRequest, str], ReplayResult]


def _deferred(module: str, name: str) -> Replayer:
    """Return a replayer whose module is imported at its first call."""

    def replay(request: ReplayRequest, variant: str) -> ReplayResult:
        replayer: Replayer = getattr(import_module(module), name)
        return replayer(request, variant)

    return replay


#: Default outputs of a family; ``prompt`` for other families.
DEFAULT_OUTPUTS: dict[str, Outputs] = {"sglang-unified": "computed"}
#: Family of a policy → its replayer.
REPLAYERS: dict[str, Replayer] = {
    "vllm": _deferred("kvcache_sim.replay.engines", "replay_vllm"),
    "sglang": _deferred("kvcache_sim.replay.engines", "replay_sglang"),
    "sglang-unified": _deferred("kvcache_sim.replay.engine_tiers", "replay_sglang_unified"),
    "lmcache": _deferred("kvcache_sim.replay.engine_tiers", "replay_lmcache"),
    "lmcache-server": _deferred("kvcache_sim.replay.engine_tiers", "replay_lmcache_server"),
    "vllm-offload": _deferred("kvcache_sim.replay.engines", "replay_offload"),
    "hosted": _deferred("kvcache_sim.replay.hosted", "replay_hosted"),
    "prefix": _deferred("kvcache_sim.replay.prefix", "replay_prefix"),
    "plugin": _deferred("kvcache_sim.replay.policy_check", "replay_plugin"),
}
