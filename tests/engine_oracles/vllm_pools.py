"""vLLM's own KVCacheManager and offloading managers, alone and one below the other, against the replays.

Requests one after another or overlapping, as ``kvsim cachesim --policy vllm`` takes them; the connector's
order of
look-up, load and store between the two is re-enacted. Run as a program: FOLDER STREAMS FIRST.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kvcache_sim.replay.request import REPLAYERS, ReplayRequest
from kvcache_sim.workload.trace import Trace

from engine_oracles import vllm_core
from engine_oracles.streams import compare_streams, digest, stream, unequal
from engine_oracles.stubs import Real, Record, known
from engine_oracles.vllm_core import BLOCK


def asked(seed: int) -> tuple[str, ReplayRequest]:
    """Return the managers of a stream (``vllm``, ``vllm-offload``, both, or both and a secondary tier) and
    what is replayed."""
    draw = random.Random(seed)
    trace = stream(draw)
    family = draw.choice(["vllm", "vllm-offload", "both", "tiering"])
    # a pool smaller than the longest request rejects it
    longest = -(-int((trace.input_tokens + trace.output_tokens).max()) // BLOCK)
    request = ReplayRequest(trace, BLOCK, max(1, longest - 3 + draw.randint(0, 2 * longest)))
    if family != "vllm-offload":
        outputs = draw.choice(["prompt", "computed", "all"])
        request = replace(request, window=draw.choice([0, 0, 4]), outputs=outputs)
    if family in ("vllm-offload", "both"):
        request = replace(request, store_threshold=draw.choice([0, 0, 2, 3]))
    if family in ("both", "tiering"):
        tier = draw.randint(1, 3 * longest)
        request = replace(request, cpu_blocks=tier, cpu_policy=draw.choice(["lru", "arc"]))
        request = replace(request, secondary=family == "tiering")
    return family, request


class Tier:
    """The offloading manager with the copies of a request done at once."""

    def __init__(self, real: Real, chunks: int, policy: str, threshold: int) -> None:
        self.real, self.stored, self.evicted, self.refused = real, 0, 0, 0
        self.manager = real.CPUOffloadingManager(chunks, policy, store_threshold=threshold)
        self.contexts = dict[int, Any]()

    def start(self, number: int, names: list[str]) -> list[bytes]:
        """Begin a request; return the keys of its prompt."""
        context = self.contexts[number] = self.real.ReqContext(str(number))
        self.manager.on_new_request(context)
        keys = [self.real.make_offload_key(name.encode(), 0) for name in names]
        for index, key in enumerate(keys):
            if hasattr(context, "set_offload_key_position"):
                context.set_offload_key_position(key, (index + 1) * BLOCK)
        return keys

    def leading(self, number: int, keys: list[bytes]) -> int:
        """Return how many leading keys are there."""
        hit = self.real.LookupResult.HIT
        missing = (k for k, key in enumerate(keys) if self.manager.lookup(key, self.contexts[number]) != hit)
        return next(missing, len(keys))

    def ask(self, number: int, keys: list[bytes]) -> int:
        """Return how many leading keys a request can load."""
        return self.leading(number, keys)

    def load(self, number: int, keys: list[bytes]) -> None:
        """Load keys that are there."""
        self.manager.prepare_load(keys, self.contexts[number])
        self.manager.complete_load(keys, self.contexts[number])

    def store(self, number: int, keys: list[bytes]) -> bool:
        """Store keys, those that are there left out; return False where there is no capacity."""
        done = self.manager.prepare_store(keys, self.contexts[number])
        # the copy is complete a step later
        self.end_step()
        if done is None:
            self.refused += 1
            return False
        self.stored, self.evicted = (
            self.stored + len(done.keys_to_store),
            self.evicted + len(done.evicted_keys),
        )
        if done.keys_to_store:
            self.manager.complete_store(done.keys_to_store, self.contexts[number])
        return True

    def end_step(self) -> None:
        """End a step without requests."""
        known(self.manager.on_schedule_end, context=self.real.step_end)

    def store_in_steps(
        self, number: int, keys: list[bytes], blocks: tuple[int, int], step: int, n: int
    ) -> None:
        """Store a prompt's keys as its steps complete them; ``blocks``: the first to store, and those cached."""
        start, at = blocks[0], min(blocks[1] * BLOCK, n - 1)
        while at < n:
            at = min(at + step, n)
            if keys[start : at // BLOCK] and self.store(number, keys[start : at // BLOCK]):
                start = at // BLOCK

    def finish(self, number: int) -> None:
        """End a request."""
        self.manager.on_request_finished(self.contexts.pop(number))


class Tiers(Tier):
    """The manager of several tiers over the wheel's example of a secondary tier, looked up until nothing is
    pending."""

    def __init__(self, real: Real, chunks: int, policy: str) -> None:
        super().__init__(real, chunks, policy, 0)
        region = Record(create_kv_memoryview=lambda: Record(strides=(1, 1)))
        self.primary = real.tiering.CPUPrimaryTierOffloadingManager(chunks, region, policy)
        self.secondary = real.ExampleSecondaryTierManager(None, Record(strides=(1, 1)), "example")
        self.manager = real.tiering.TieringOffloadingManager(self.primary, [self.secondary])
        self.chunks, self.promoted, self.aborted = chunks, 0, 0
        own = vars(self.secondary)
        self.kept = own["chunks"] if "chunks" in own else own["blocks"]
        prepare = self.primary.prepare_write

        def counted(keys: Any, context: Any) -> Any:
            done = prepare(keys, context)
            if done is not None:
                self.promoted += len(done.keys_to_store)
                self.evicted += len(done.evicted_keys)
            return done

        self.primary.prepare_write = counted

    def ask(self, number: int, keys: list[bytes]) -> int:
        """Look up, one step each, until nothing is pending; blocks that could never all be found are not
        looked up."""
        result, context = self.real.LookupResult, self.contexts[number]
        there = (k for k, key in enumerate(keys) if key not in self.kept)
        run = keys[: min(next(there, len(keys)), self.chunks)]
        found = 0
        for _ in range(len(run) + 1):
            found, is_pending = 0, False
            # the connector's _maximal_prefix_lookup
            for key in run:
                answer = self.manager.lookup(key, context)
                if answer not in (result.HIT, result.HIT_PENDING):
                    break
                found, is_pending = found + 1, is_pending or answer == result.HIT_PENDING
            self.end_step()
            if not is_pending:
                return found
        self.manager._maybe_process_finished_jobs()
        self.end_step()
        self.aborted += 1
        return self.leading_here(run)

    def leading_here(self, keys: list[bytes]) -> int:
        """Return how many leading keys the CPU has."""
        return next((k for k, key in enumerate(keys) if self.primary._policy.get(key) is None), len(keys))


class Pool:
    """The cache manager, and how many of its free blocks have lost their keys."""

    def __init__(self, real: Real, trace: Trace, request: ReplayRequest) -> None:
        self.real, self.trace = real, trace
        self.manager = known(
            real.KVCacheManager,
            vllm_core.cache_configuration(real, request.capacity_blocks),
            max_model_len=1 << 20,
            scheduler_block_size=BLOCK,
            hash_block_size=BLOCK,
            max_in_flight_tokens=1 << 20,
        )
        self.evictions = vllm_core.evictions_of(self.manager)

    def request(self, number: int, total: int) -> tuple[Any, list[str]]:
        """Return a request as the manager reads it, and the names of all its blocks."""
        n = int(self.trace.input_tokens[number])
        names = vllm_core.block_names(self.trace, number, total // BLOCK)
        hashes = [name.encode() for name in names[: n // BLOCK]]
        made = vllm_core.bare_request(self.real, number, n, hashes)
        return made, names


def run(real: Real, family: str, request: ReplayRequest) -> dict[str, Any]:
    """Drive a stream through the pool, and the tier below it where there is one."""
    from support.product.machines import total_tokens

    trace, running = request.trace, deque[Any]()
    pool = Pool(real, trace, request)
    tier: Tier | None = None
    if family == "tiering":
        tier = Tiers(real, request.cpu_blocks, request.cpu_policy)
    if family == "both":
        tier = Tier(real, request.cpu_blocks, request.cpu_policy, request.store_threshold)
    hits, loads, forced, totals = list[int](), list[int](), 0, total_tokens(request).tolist()

    def end(made: Any) -> None:
        pool.manager.free(made)
        if tier is not None:
            tier.finish(int(made.request_id))

    def with_capacity(allocate: Callable[[], Any]) -> bool:
        nonlocal forced
        while allocate() is None:
            if not running:
                return False
            end(running.popleft())
            forced += 1
        return True

    for number, n in enumerate(trace.input_tokens.tolist()):
        if request.window and len(running) == request.window:
            end(running.popleft())
        made, names = pool.request(number, totals[number])
        blocks, found = pool.manager.get_computed_blocks(made)[:2]
        below, keys, allocate = 0, list[bytes](), pool.manager.allocate_slots
        if tier is not None:
            keys = tier.start(number, names[: n // BLOCK])
            # a prompt that can never fit does not ask
            fits_alone = -(-totals[number] // BLOCK) <= request.capacity_blocks
            below = tier.ask(number, keys[found // BLOCK :]) if fits_alone else 0
        fits = with_capacity(lambda: allocate(made, n - found, found, blocks))  # noqa: B023
        if fits and totals[number] > n:
            made.num_computed_tokens, made.num_tokens = n, totals[number]
            made.block_hashes, made.status = [name.encode() for name in names], real.RequestStatus.RUNNING
            fits = with_capacity(lambda: allocate(made, totals[number] - n))  # noqa: B023
        if not fits:
            pool.manager.free(made)
        hits.append(found if fits else -1)
        loads.append(below * BLOCK if fits else 0)
        if tier is not None and fits:
            behind = found // BLOCK + below
            if below:
                tier.load(number, keys[found // BLOCK : behind])
            blocks = (behind if below else 0, behind)
            tier.store_in_steps(number, keys, blocks, request.step_tokens, n)
        if fits:
            running.append(made)
            if not request.window:
                end(running.popleft())
    while running:
        end(running.popleft())
    figures = {
        "hit_tokens": sum(hit for hit in hits if hit >= 0),
        "per_request_hit_tokens_sha256": digest(hits),
        "forced_frees": forced,
        "evictions": pool.evictions["blocks"],
        "final_free_queue_sha256": vllm_core.free_queue(pool.manager),
    }
    if tier is not None:
        figures |= {"loaded_tokens": sum(loads), "per_request_loaded_tokens_sha256": digest(loads)}
        figures |= {
            "stored_chunks": tier.stored,
            "evicted_chunks": tier.evicted,
            "refused_stores": tier.refused,
        }
    if isinstance(tier, Tiers):
        figures |= {"promoted_chunks": tier.promoted, "lookups_given_up": tier.aborted}
        figures["secondary_chunks"] = len(tier.kept)
    return figures


def run_tier(real: Real, policy: str, request: ReplayRequest) -> dict[str, Any]:
    """Drive a stream through the offloading manager alone, which is offered every whole prompt."""
    tier = Tier(real, request.capacity_blocks, policy, request.store_threshold)
    hits = []
    for number, n in enumerate(request.trace.input_tokens.tolist()):
        keys = tier.start(number, vllm_core.block_names(request.trace, number, n // BLOCK))
        found = tier.leading(number, keys[: (n - 1) // BLOCK])
        hits.append(found * BLOCK)
        if found:
            tier.load(number, keys[:found])
        tier.store(number, keys)
        tier.finish(number)
    stored = {"stored_chunks": tier.stored, "evicted_chunks": tier.evicted}
    return {"hit_tokens": sum(hits), "per_request_hit_tokens_sha256": digest(hits), **stored}


def policy_of(family: str, seed: int) -> str:
    """Return the policy of the offloading manager alone, drawn with the stream."""
    return random.Random(-seed - 1).choice(["lru", "arc"]) if family == "vllm-offload" else ""


def ours(family: str, request: ReplayRequest, policy: str) -> dict[str, Any]:
    """Return this project's figures of a stream."""
    return REPLAYERS[family if family == "vllm-offload" else "vllm"](request, policy)


def theirs(real: Real, family: str, request: ReplayRequest, policy: str) -> dict[str, Any]:
    """Return the figures of vLLM's own classes."""
    return run_tier(real, policy, request) if policy else run(real, family, request)


def differs(real: Real, seed: int) -> str | None:
    """Return how a stream differs, None where it is equal."""
    family, request = asked(seed)
    # rows of whole prompts in a step are recorded
    request = replace(request, step_tokens=random.Random(-seed - 2).choice([50, 128, 8192]))
    policy = policy_of(family, seed)
    own = ours(family, request, policy)
    return unequal(own, theirs(real, family, request, policy), (family, policy))


if __name__ == "__main__":
    sys.exit(compare_streams("vLLM pools", vllm_core.load, differs, *sys.argv[1:4]))
