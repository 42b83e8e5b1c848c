"""vLLM's own KVCacheManager and HybridKVCacheCoordinator over several cache groups, against the replays.

Requests one after another or overlapping, prompts in chunks that end where vLLM's own Scheduler ends them,
answers
a token a step, as ``kvsim cachesim --policy vllm --model`` takes them. Run as a program: FOLDER STREAMS
FIRST.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.model.kv_groups import KvGroup, KvLayout
from kvcache_sim.replay.kv_groups import replay_groups
from kvcache_sim.replay.request import ReplayRequest
from support.product.machines import total_tokens

from engine_oracles import vllm_core
from engine_oracles.streams import Refused, compare_streams, digest, lines_digest, stream, unequal
from engine_oracles.stubs import Real, Record, known
from engine_oracles.vllm_core import BLOCK

#: The longest sequence.
LONGEST = 262_144
#: Streams below this seed are recorded, with the layouts of ``groups``.
RECORDED = 100


def asked(seed: int) -> tuple[ReplayRequest, GroupSettings]:
    """Return a stream, a pool that is at times only just large enough, and the groups in it."""
    draw = random.Random(seed)
    trace = stream(draw)
    layout = layout_of(seed, draw)
    align = layout.scheduler_block_size
    interval = draw.choice([0, 0, None, align, 2 * align, 4 * align])
    if all(group.kind in ("full", "chunked") for group in layout.groups):
        interval = draw.choice([0, None])  # the engine refuses others, which had no effect
    settings = GroupSettings("drawn", layout, draw.choice([32, 64, 100, 256, 2048]), interval, LONGEST)
    longest = int((trace.input_tokens + trace.output_tokens).max())
    most = sum(-(-longest // group.block_size_tokens) for group in layout.groups)
    # a pool smaller than the longest request rejects it
    blocks = max(2, most // draw.choice([1, 1, 2, 3]) + draw.randint(-3, 2 * most))
    window = draw.choice([0, 0, 2, 5])
    return ReplayRequest(trace, BLOCK, blocks, window=window, outputs="computed", groups=settings), settings


def layout_of(seed: int, draw: random.Random) -> KvLayout:
    """Return the groups of a stream: past those that are recorded, a fifth are DeepSeek-V4's."""
    if seed >= RECORDED and seed % 5 == 0:
        return latents(random.Random(f"latents {seed}"))
    return groups(draw)


def groups(draw: random.Random) -> KvLayout:
    """Return full attention with windows, chunks or states, in blocks that divide one another, in any
    order."""
    base, kinds = BLOCK * draw.choice([1, 1, 2, 3]), ["full"]
    kinds += draw.sample(["sliding", "sliding", "linear", "chunked"], draw.choice([1, 1, 1, 2]))
    # chunks and states stand at the common block in the engine
    even = {"chunked", "linear"} & set(kinds)
    made = []
    for kind in kinds:
        size = base * (1 if even else draw.choice([1, 1, 2, 4]))
        reach = 0
        if kind == "sliding":
            reach = draw.randint(1, 160)
        elif kind == "chunked":
            reach = size * draw.randint(1, 6)
        made += [KvGroup(kind, size, reach, (0,))] * draw.choice([1, 1, 2, 3])  # type: ignore[arg-type]
    draw.shuffle(made)
    return KvLayout(tuple(made), 1, 1)


def latents(draw: random.Random) -> KvLayout:
    """Return groups as DeepSeek-V4 has them, in larger blocks: two of windows, latents, and sums of two
    reaches."""
    latents, far = draw.choice([4, 8]) * BLOCK, draw.choice([1, 2]) * BLOCK
    window = KvGroup("sliding", 2 * BLOCK, 4 * BLOCK, (0,))
    sums = (
        KvGroup("sliding", BLOCK, 2 * BLOCK, (0,)),
        KvGroup("sliding", far, draw.choice([48, 64, 100]), (0,)),
    )
    return KvLayout((window, window, KvGroup("full", latents, 0, (0,)), *sums), 1, 1)


def specification(real: Real, group: KvGroup, caches: bool = True) -> Any:
    """Return what vLLM calls a group's layers; without caching a state covers a request."""
    heads = {"num_kv_heads": 1, "head_size": 1, "dtype": real.bfloat16}
    size, kinds = group.block_size_tokens, real.interface
    if group.kind == "full":
        return kinds.FullAttentionSpec(block_size=size, **heads)
    if group.kind == "sliding":
        return kinds.SlidingWindowSpec(block_size=size, sliding_window=group.reach_tokens, **heads)
    if group.kind == "chunked":
        return kinds.ChunkedLocalAttentionSpec(
            block_size=size, attention_chunk_size=group.reach_tokens, **heads
        )
    mode, size = ("align", size) if caches else ("none", LONGEST)
    return kinds.MambaSpec(block_size=size, shapes=((1,),), dtypes=(real.bfloat16,), mamba_cache_mode=mode)


def configuration(real: Real, blocks: int, settings: GroupSettings, caches: bool = True) -> Any:
    """Return vLLM's configuration of the groups in a pool of so many usable blocks."""
    layout = settings.layout
    kept = settings.retention_interval if caches else None
    has_states = any(group.kind in ("sliding", "linear") for group in layout.groups)
    # older releases read it from the environment
    vars(sys.modules["vllm.envs"])["VLLM_PREFIX_CACHE_RETENTION_INTERVAL"] = kept if has_states else None
    return known(
        real.interface.KVCacheConfig,
        num_blocks=blocks + 1,
        kv_cache_tensors=[],
        kv_cache_groups=[
            real.interface.KVCacheGroupSpec([f"layer{n}"], specification(real, group, caches))
            for n, group in enumerate(layout.groups)
        ],
        prefix_cache_retention_interval=kept,
        hash_block_size=layout.hash_block_size,
        cache_hit_alignment_tokens=layout.scheduler_block_size,
    )


class Engine:
    """The manager of a wheel over a stream, with a record of its actions."""

    def __init__(self, real: Real, request: ReplayRequest, settings: GroupSettings) -> None:
        self.real, self.trace, layout = real, request.trace, settings.layout
        self.unit, self.most = layout.hash_block_size, settings.max_num_batched_tokens
        self.manager = known(
            real.KVCacheManager,
            configuration(real, request.capacity_blocks, settings),
            max_model_len=LONGEST,
            scheduler_block_size=layout.scheduler_block_size,
            hash_block_size=self.unit,
            max_in_flight_tokens=self.most,
            max_num_batched_tokens=self.most,  # its older name
        )
        states = [group.block_size_tokens for group in layout.groups if group.kind == "linear"]
        #: What the scheduler's own rule of chunks reads of a scheduler.
        self.scheduler = Record(
            cache_config=Record(block_size=states[0] if states else 0),
            block_size=layout.scheduler_block_size,
            hash_block_size=self.unit,
            mamba_partial_cache_hit=False,
            use_eagle_block_drop=False,
            num_hash_lookahead_tokens=0,
            mamba_has_prefill_checkpoint_blocks=False,
            mamba_shared_prefix_checkpoint=False,
            max_num_scheduled_tokens=self.most,
            scheduler_config=Record(long_prefill_token_threshold=0),
        )
        self.has_states = bool(states)
        self.running, self.window = deque[Any](), request.window
        self.names_junctions, self.uncached = True, 0
        self.forced = self.junctions = self.chunks = 0
        self.evictions = vllm_core.evictions_of(self.manager)

    def hashes(self, number: int, units: int) -> list[bytes]:
        """Return the hashes of a request's first units: the name of the last block of the trace in each."""
        names = vllm_core.block_names(self.trace, number, units * self.unit // BLOCK)
        named = [names[(unit + 1) * self.unit // BLOCK - 1] for unit in range(units)]
        own = f"o{number}:"
        return [(f"{own}{k}" if name.startswith(own) else name).encode() for k, name in enumerate(named)]

    def request(self, number: int) -> Any:
        """Return a request as the manager reads it."""
        n = int(self.trace.input_tokens[number])
        return vllm_core.bare_request(self.real, number, n, self.hashes(number, n // self.unit))

    def run(self, number: int, total: int) -> int:
        """Run a request until the given number of tokens have KV; return its hit, -1 if it never fits."""
        if self.window and len(self.running) == self.window:
            self.manager.free(self.running.popleft())
        made = self.request(number)
        blocks, found, *boundary = self.manager.get_computed_blocks(made)
        self.names_junctions = bool(boundary)
        # older releases keep it for the rule of chunks alone
        self.uncached = getattr(self.manager.coordinator, "num_uncached_common_prefix_tokens", 0)
        made.shared_prefix_boundary = boundary[0] if boundary else 0
        self.junctions += made.shared_prefix_boundary > 0
        if not self.compute(made, blocks, found) or not self.decode(made, number, total):
            self.manager.free(made)
            return -1
        self.running.append(made)
        if not self.window:
            self.manager.free(self.running.popleft())
        return found

    def compute(self, made: Any, blocks: Any, found: int) -> bool:
        """Compute a prompt chunk by chunk behind its hit; False where that does not fit."""
        allocate, at = self.manager.allocate_slots, found
        while at < made.num_prompt_tokens:
            tokens = min(self.most, made.num_prompt_tokens - at)
            first = at == found
            if self.has_states:
                local = found if first else 0
                tokens = known(
                    self.real.Scheduler._mamba_block_aligned_split,
                    self.scheduler,
                    made,
                    tokens,
                    local,
                    num_uncached_common_prefix_tokens=self.uncached if first else 0,
                )
                if not tokens:  # older releases never schedule it: a state's block is longer than a step
                    raise Refused
            attempt: Callable[[], Any] = lambda tokens=tokens: allocate(made, tokens)  # noqa: E731
            if first:
                attempt = lambda tokens=tokens: allocate(  # noqa: E731
                    made, tokens, found, blocks, full_sequence_must_fit=True
                )
            if not self.with_capacity(attempt):
                return False
            at += tokens
            self.chunks += 1
            made.num_computed_tokens, made.status = at, self.real.RequestStatus.RUNNING
        return True

    def decode(self, made: Any, number: int, total: int) -> bool:
        """Generate a token a step; False where one does not fit."""
        names = self.hashes(number, total // self.unit)
        for computed in range(made.num_prompt_tokens, total):
            made.num_tokens = computed + 1
            made.block_hashes = names[: made.num_tokens // self.unit]
            if not self.with_capacity(lambda: self.manager.allocate_slots(made, 1)):
                return False
            made.num_computed_tokens = computed + 1
        return True

    def with_capacity(self, allocate: Callable[[], Any]) -> bool:
        """Allocate in a step of its own, ending the oldest requests while that is refused."""
        self.manager.new_step_starts()
        while allocate() is None:
            if not self.running:
                return False
            self.manager.free(self.running.popleft())
            self.forced += 1
        return True

    def figures(self, hits: list[int]) -> dict[str, Any]:
        """End what runs and return the figures of a row."""
        while self.running:
            self.manager.free(self.running.popleft())
        lines = []
        for block in self.manager.block_pool.free_block_queue.get_all_free_blocks():
            key = block.block_hash  # its group's number stands behind it, in four bytes
            lines.append("-" if key is None else f"{int.from_bytes(key[-4:], 'big')}/{key[:-4].decode()}")
        return {
            "hit_tokens": sum(hit for hit in hits if hit >= 0),
            "per_request_hit_tokens_sha256": digest(hits),
            "forced_frees": self.forced,
            "evictions": self.evictions["blocks"],
            **({"shared_prefix_junctions": self.junctions} if self.names_junctions else {}),
            "prefill_chunks": self.chunks,
            "final_free_queue_sha256": lines_digest(lines),
        }


def replayed(real: Real, request: ReplayRequest, settings: GroupSettings) -> dict[str, Any]:
    """Return the figures of vLLM's own classes."""
    engine = Engine(real, request, settings)
    return engine.figures(
        [engine.run(number, total) for number, total in enumerate(total_tokens(request).tolist())]
    )


def differs(real: Real, seed: int) -> str | None:
    """Return how a stream differs, None where it is equal."""
    request, settings = asked(seed)
    return unequal(replay_groups(request, settings), replayed(real, request, settings), settings)


if __name__ == "__main__":
    sys.exit(compare_streams("vLLM groups", vllm_core.load, differs, *sys.argv[1:4]))
