"""Each block of a hit in a running cluster: its names, its tokens, and every copy on every machine."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.cache.operations.listing import ListedBlock, list_blocks
from kvcache_sim.serving.replica.contract import AnyReplica
from kvcache_sim.workload.block_names import BlockNames
from kvcache_sim.workload.block_tokens import BlockTokens


def list_hit(
    replicas: Sequence[AnyReplica],
    machine: int,
    of: tuple[int, int],
    names: BlockNames,
    tokens: BlockTokens | None = None,
) -> tuple[ListedBlock, ...]:
    """Return the blocks that ``of`` = (request, prompt tokens) would hit on a machine now, with all copies.

    Every copy has its times, None while one is not known. Changes nothing. UsageError where the cache does
    not keep blocks in a tree. Cost: a walk a machine.
    """
    request, prompt_tokens = of
    for replica in replicas:
        replica.catch_up(replica.engine.now_ns)
    asked = replicas[machine]
    limit = asked.cache.matchable_blocks(prompt_tokens)
    found = asked.store.peek(request, limit)[0]
    if asked.remote is not None and found < limit:
        away = asked.remote.longest(request, found, limit)
        found = found if away is None else away.end
    return list_blocks([replica.mover for replica in replicas], request, found, names, tokens)
