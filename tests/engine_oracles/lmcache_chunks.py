"""LMCache's own backends with chunks of 256 tokens above vLLM's blocks of 16, against a run of next to no service time.

The engine around the backends is that of ``lmcache_tiers``, but for the chunks that the GPU has whole, which the
connector does not retrieve.
"""

from __future__ import annotations

import logging
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import numpy as np  # noqa: E402
from kvcache_sim.replay.request import ReplayRequest  # noqa: E402

from engine_oracles import lmcache_tiers  # noqa: E402
from engine_oracles.streams import compare_streams, in_chunks, stream  # noqa: E402

BLOCK, CHUNK = 16, 256
PER = CHUNK // BLOCK


def differs(real: Any, seed: int) -> str | None:
    """Return what is unequal in the stream of a seed, None if nothing is."""
    draw = random.Random(seed)
    trace = stream(draw, (600, 2000, 4800))
    trace = replace(trace, arrival_ns=np.arange(len(trace), dtype=np.int64) * 10**9)
    total = trace.input_tokens + trace.output_tokens
    gpu = -(-int(total.max()) // BLOCK) + draw.choice([0, draw.randint(0, 900)])
    longest = int(trace.input_tokens.max()) // CHUNK
    cpu = longest + 1 + draw.randint(0, 2 * longest)
    disk = draw.choice([0, cpu // 2 + 1, cpu + 5, 2 * cpu])
    policy = draw.choice(["lru", "lfu", "fifo", "mru"])
    below = (
        f"cpu: {{capacity: {cpu * PER} blocks, policy: {policy}, semantics: lmcache, chunk_tokens: {CHUNK}}}"
    )
    below += f", disk: {{capacity: {disk * PER} blocks}}" if disk else ""
    done, in_pool = lmcache_tiers.timed_below_pool(trace, gpu, below)
    columns = done.requests
    theirs = lmcache_tiers.run(
        real, ReplayRequest(in_chunks(trace, PER), CHUNK, cpu, disk_blocks=disk), policy, in_pool
    )
    found = theirs["per_request_hit_tokens"]
    from_disk = [CHUNK * n for n in theirs["per_request_disk_chunks"]]
    # a prompt found whole is computed for its last token, whose block is loaded too
    loaded = [max(0, hit - pool) for hit, pool in zip(found, in_pool, strict=True)]
    wanted = {
        "pool": in_pool,
        "cpu": [new - min(new, disk) for new, disk in zip(loaded, from_disk, strict=True)],
        "disk": [min(new, disk) for new, disk in zip(loaded, from_disk, strict=True)],
        "stored": theirs["stored_chunks"],
        "read": theirs["read_chunks"],
    }
    ours = {
        "pool": columns["cached_gpu_tokens"].tolist(),
        "cpu": columns["cached_cpu_tokens"].tolist(),
        "disk": columns["cached_disk_tokens"].tolist() if disk else [0] * len(found),
        "stored": lmcache_tiers.moved_blocks(done, "gpu->cpu") // PER,
        "read": lmcache_tiers.moved_blocks(done, "disk->cpu") // PER,
    }
    wrong = {name: (ours[name], theirs) for name, theirs in wanted.items() if ours[name] != theirs}
    return f"{policy}, {gpu} blocks, {cpu} and {disk} chunks: {wrong}" if wrong else None


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    sys.exit(compare_streams("LMCache chunks", lmcache_tiers.load, differs, *sys.argv[1:4]))
