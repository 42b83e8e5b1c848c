"""Each block of a hit in a running cluster: its names, its tokens, and every copy on every machine."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.cache.operations.listing import ListedBlock, list_blocks
from kvcache_sim.serving.native_cluster import NativeCluster
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.workload.block_names import BlockNames, BlockTokens


def list_hit(
    replicas: Sequence[NativeReplica],
    together: NativeCluster | None,
    of: tuple[int, int, int],
    names: BlockNames,
    tokens: BlockTokens | None = None,
) -> tuple[ListedBlock, ...]:
    """Return the blocks that a request would hit on a machine now, with all copies.

    Every copy has its times, None while one is not known. Changes nothing. Cost: a walk a machine.

    Args:
        replicas: All machines.
        together: The same where they read each other.
        of: The machine, the request, and the tokens of its prompt.
        names: Names of the blocks.
        tokens: What they contain, where that is listed.

    Raises:
        UsageError: The cache does not keep blocks in a tree.
    """
    machine, request, prompt_tokens = of
    for replica in replicas:
        replica.catch_up(replica.engine.now_ns)
    asked = replicas[machine]
    limit = asked.cache.matchable_blocks(prompt_tokens)
    found = asked.store.peek(request, limit)[0]
    if asked.reads_others and together is not None and found < limit:
        found = together.longest(machine, request, (found, limit)) or found
    return list_blocks(
        [(replica.machine, replica.tree) for replica in replicas], request, found, names, tokens
    )
