"""A model's KV cache groups in one pool: retention settings, and keys of blocks over a trace."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kvcache_sim import _core
from kvcache_sim.base.values import Value
from kvcache_sim.model.kv_groups import GroupKind, KvLayout
from kvcache_sim.workload.key_arrays import NO_NEXT_TURN, next_turns
from kvcache_sim.workload.trace import Trace

#: Rules of reuse of a pool of groups. ``vllm``: a key computed twice has two blocks, and a request's
#: blocks are freed group by group, each last to first. ``tree``: a key has one block; blocks are freed from
#: the end on.
GroupRules = Literal["vllm", "tree"]


class GroupSettings(Value):
    """A model's KV cache groups in one pool, and their retention.

    ``retention_interval``: None keeps a checkpoint (a window's blocks, a state) at every aligned boundary. 0
    keeps them only at the end of a prompt and of its found prefix, R also every R tokens. ``gpus`` hold a
    part of each block.
    """

    model: str
    layout: KvLayout
    max_num_batched_tokens: int = 8192
    retention_interval: int | None = 0
    max_model_len: int = 262144
    gpus: int = 1
    rules: GroupRules = "vllm"

    @property
    def block_bytes(self) -> int:
        """Bytes of a block of the pool, on all GPUs together."""
        return self.layout.bytes_per_block * self.gpus

    @property
    def limits(self) -> tuple[int, int | None, int]:
        """The settings for the core: tokens of a step, retention interval, longest sequence."""
        return self.max_num_batched_tokens, self.retention_interval, self.max_model_len


class Newcomer(Value):
    """A request that needs blocks of a pool of cache groups, and the step that it would join.

    Counts are tokens unless they say blocks; ``matchable_blocks`` are of the groups' common block.
    """

    request: int
    #: Tokens of its prompt: a later request with the same prompt can continue from its end.
    prompt_tokens: int
    #: Tokens to compute before it decodes: prompt, and tokens generated before a preemption.
    known_tokens: int
    matchable_blocks: int
    #: Most tokens of it in this step.
    step_tokens: int
    #: Most tokens of any of its chunks.
    chunk_tokens: int
    #: Free blocks that it must leave.
    kept_blocks: int = 0
    #: True if all its tokens must fit, not only those of its first step.
    whole: bool = True
    #: Free blocks that prompts at work still need, where it first waits for a load.
    claimed_blocks: int = 0
    #: Most steps in flight: blocks that they read are kept until they have finished.
    steps_in_flight: int = 1


class Brought(Value):
    """Blocks that an admission to cache groups loads from a lower tier, in the groups' common block."""

    #: Blocks found in the pool itself.
    in_pool_blocks: int
    #: Moves that must finish before its blocks are free.
    freeing_moves: list[int]
    #: Moves that load its KV, with the source tier of each.
    loads: list[tuple[int, int]]


def native_groups(
    layout: KvLayout, trace: Trace, answers_shared: bool = False, state_tokens: int = 0
) -> _core.KvGroups:
    """Return the core's groups over a trace: a block has the key of its last unit.

    A unit divides both the group's block and the trace's block, so that neither has to divide the other.
    ``answers_shared``: a generated block takes its name from the same position of the session's next turn.
    ``state_tokens``: a request of at most that many tokens has one state; 0: a state for each block.
    """
    units = {
        group.block_size_tokens: math.gcd(group.block_size_tokens, trace.block_size)
        for group in layout.groups
    }
    following = next_turns(trace) if answers_shared else np.full(len(trace), NO_NEXT_TURN, np.uint32)
    keys = {unit: _unit_keys(trace, unit, following) for unit in set(units.values())}
    align = layout.scheduler_block_size
    whole = -(-min(state_tokens, 1 << 30) // align) * align
    rows: list[tuple[GroupKind, int, int, _core.Keys, int]] = [
        # a state for the whole request is a block that no request fills, and no chunk ends at
        ("full", whole, 0, keys[units[size]], 1)
        if state_tokens and group.kind == "linear"
        else (group.kind, size, group.reach_tokens, keys[units[size]], size // units[size])
        for group in layout.groups
        for size in (group.block_size_tokens,)
    ]
    return _core.KvGroups(rows, align)


def states_per_request(groups: GroupSettings, cached: bool) -> int:
    """Return the tokens that one state of a request covers, 0 if there is a state for each block.

    Without prefix caching vLLM keeps one state a request (``mamba_cache_mode`` none).
    """
    return groups.max_model_len if groups.rules == "vllm" and not cached else 0


def _unit_keys(trace: Trace, unit: int, following: NDArray[np.uint32]) -> _core.Keys:
    per_id = trace.block_size // unit
    named = np.minimum(trace.input_tokens // unit, np.diff(trace.id_offsets) * per_id)
    return _core.Keys(
        trace.id_offsets.astype(np.int64),
        trace.block_ids.astype(np.uint32),
        per_id,
        named.astype(np.uint32),
        following,
    )
