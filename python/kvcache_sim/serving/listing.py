"""Each block of a hit in a running cluster: its names, its tokens, and every copy on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvcache_sim.cache.operations.listing import ListedBlock, list_blocks
from kvcache_sim.cache.store import BlockRange
from kvcache_sim.serving.native_cluster import NativeCluster
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.workload.block_names import BlockNames, BlockTokens


class Prompt(NamedTuple):
    """A prompt on a machine: the machine's index, the request's, and its prompt tokens."""

    machine: int
    request: int
    tokens: int


def list_hit(
    replicas: Sequence[NativeReplica],
    together: NativeCluster | None,
    prompt: Prompt,
    names: BlockNames,
    tokens: BlockTokens | None = None,
) -> tuple[ListedBlock, ...]:
    """Return the blocks that a request would hit on a machine now, with all copies.

    Every copy has its times (ns), None while unknown. Changes nothing. Cost: one walk per machine; if copies
    wait for their channels, all transfers in flight.

    Args:
        replicas: All machines, by number.
        together: The same machines in the core, if it orders their events; else None.
        prompt: The prompt and its machine.
        names: Names of the blocks.
        tokens: Contents of the blocks; None leaves them out.

    Returns:
        The blocks of the hit, in the order of the prompt.

    Raises:
        UsageError: The cache does not keep blocks in a tree.
    """
    machine, request, prompt_tokens = prompt
    for replica in replicas:
        replica.catch_up(replica.engine.now_ns)
    asked = replicas[machine]
    limit = asked.cache.matchable_blocks(prompt_tokens)
    found = asked.store.peek(request, limit)[0]
    if asked.reads_others and together is not None and found < limit:
        found = together.longest(machine, request, BlockRange(found, limit)) or found
    trees = {replica.machine: replica.tree for replica in replicas}
    cores = [replica.core for replica in replicas] if together is None else together.cores
    return list_blocks(trees, request, found, names, tokens, replicas=cores)
