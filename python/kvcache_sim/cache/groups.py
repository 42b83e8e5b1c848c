"""A model's KV cache groups in one pool, and the settings that decide what it keeps."""

from __future__ import annotations

from typing import Literal

from kvcache_sim.model.kv_groups import KvLayout
from kvcache_sim.values import Value

#: Whose rules of reuse a pool of groups follows. ``vllm``: a key computed twice has two blocks, and a
#: request's go group by group, each last to first. ``tree``: a key has one, and they go from the end on.
GroupRules = Literal["vllm", "tree"]


class GroupSettings(Value):
    """A model's KV cache groups in one pool, and the settings that decide what it keeps.

    ``retention_interval``: None keeps a checkpoint (a window's blocks, a state) at every aligned boundary,
    0 only where a prompt ends or parted from what was found, R besides one every R tokens. ``gpus`` hold a
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
        """The settings as managers take them: tokens of a step, retention interval, longest sequence."""
        return self.max_num_batched_tokens, self.retention_interval, self.max_model_len


class Newcomer(Value):
    """A request that asks a pool of cache groups for room, and the step that it would join.

    Counts are tokens unless they say blocks; ``matchable_blocks`` are of the groups' common block.
    """

    request: int
    #: Those of its prompt: another request of it can go on from where it ends.
    prompt_tokens: int
    #: Those to compute before it decodes: prompt, and what it generated before a preemption.
    known_tokens: int
    matchable_blocks: int
    #: Those of the step that it may have.
    step_tokens: int
    #: Most of any of its chunks.
    chunk_tokens: int
    #: Free blocks that it leaves.
    kept_blocks: int = 0
    #: Whether all its tokens must have room, not only those of its first step.
    whole: bool = True
    #: Steps that may be under way at one time: what they read is kept until they have ended.
    steps_in_flight: int = 1


class Brought(Value):
    """What an admission to cache groups brings from a tier below: counts of the groups' common block."""

    #: Those that the pool itself had.
    in_pool_blocks: int
    #: Moves that must end before its room is free.
    room: list[int]
    #: Moves that bring its KV, with the tier each comes from.
    loads: list[tuple[int, int]]
