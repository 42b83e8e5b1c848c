"""Other caches over the lookups of an engine's events, by the replay engines of policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.live.shadow.following import Engine
from kvcache_sim.policies.resolve import parse_variant, resolve_policy
from kvcache_sim.replay.prefix import prefix_answer
from kvcache_sim.replay.prompt_blocks import PromptBlocks
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.workload.imports.kv_lookups import LookUp
from kvcache_sim.workload.trace import NO_SESSION, OPEN_LOOP, Trace


@dataclass(frozen=True, slots=True)
class OtherCache:
    """A cache to compare with: its name, policy, and blocks as a multiple of the engine's plus a number.

    A lower tier that receives the GPU's evictions forms with the GPU one cache of the blocks of both.
    """

    name: str
    policy: str = "lru"
    times: float = 1.0
    more_blocks: int = 0

    def blocks(self, engine_blocks: int) -> int:
        """Return its blocks for an engine of ``engine_blocks``."""
        return int(engine_blocks * self.times) + self.more_blocks


@dataclass(frozen=True, slots=True)
class Share:
    """Blocks of prompts, and the found blocks among them."""

    found: int = 0
    asked: int = 0

    def __add__(self, other: Share) -> Share:
        """Return both together."""
        return Share(self.found + other.found, self.asked + other.asked)

    @property
    def rate(self) -> float | None:
        """The hit rate (0 to 1); None without lookups."""
        return self.found / self.asked if self.asked else None


def checked_policy(name: str) -> str:
    """Return the name of a policy that can be replayed on lookups; UsageError for another policy."""
    family, variant = resolve_policy(name)
    if family != "prefix":
        expected = "a policy that is no engine's own, as kvsim policies list shows them"
        raise UsageError("an engine's own cache does not shadow", "--policy", repr(name), expected)
    parse_variant(variant, 16)
    return variant


def engine_share(engine: Engine, below: bool = False) -> Share:
    """Return an engine's own hits of the counted lookups; ``below``: in its lower tiers."""
    counted = list(engine.look_ups)[engine.warming :]
    found = sum(each.found_below if below else each.found for each in counted)
    return Share(found, sum(each.prompt for each in counted))


def other_shares(engine: Engine, engine_blocks: int, others: Sequence[OtherCache]) -> list[Share]:
    """Return the hits of each other cache on the counted lookups.

    The caches are empty before the first kept lookup; lookups follow one another, each with the answer's
    blocks. Cost: one replay of all kept lookups per cache.
    """
    if not engine.look_ups:
        return [Share() for _ in others]
    prompts = prompts_of(engine.look_ups, engine.state.block_size)
    asked = int(prompts.limits[engine.warming :].sum(dtype=np.int64))
    shares = []
    for other in others:
        capacity = max(other.blocks(engine_blocks), 1)
        request = ReplayRequest(prompts.trace, prompts.block_size_tokens, capacity)
        answer = prefix_answer(request, prompts, parse_variant(other.policy, prompts.block_size_tokens))
        found = np.minimum(answer.hits, prompts.limits)[engine.warming :]
        shares.append(Share(int(found.sum(dtype=np.int64)), asked))
    return shares


def prompts_of(look_ups: Sequence[LookUp], block_size: int) -> PromptBlocks:
    """Return lookups as prompts; the answer's blocks are stored with them and are no hits."""
    n = len(look_ups)
    dense: dict[int | str, int] = {}
    ids = np.array([dense.setdefault(b, len(dense)) for each in look_ups for b in each.blocks], np.uint32)
    blocks = np.array([len(each.blocks) for each in look_ups], np.int64)
    limits = np.array([each.prompt for each in look_ups], np.int64)
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum(blocks, out=offsets[1:])
    trace = Trace(
        arrival_ns=np.array([each.at_ns for each in look_ups], np.int64),
        input_tokens=limits * block_size + 1,
        output_tokens=np.maximum((blocks - limits) * block_size, 1),
        id_offsets=offsets,
        block_ids=ids,
        block_size=block_size,
        session=np.full(n, NO_SESSION, np.int32),
        turn=np.zeros(n, np.int32),
        think_ns=np.full(n, OPEN_LOOP, np.int64),
        is_conversational_turn=np.zeros(n, np.bool_),
        source="KV events",
    )
    counts = blocks.astype(np.uint32)
    return PromptBlocks(trace, block_size, 1, counts, np.zeros_like(counts), limits.astype(np.uint32))
