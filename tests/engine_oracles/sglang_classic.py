"""SGLang's own classic RadixCache over streams, against ``kvsim cachesim --policy sglang``.

Stood in for: torch, pools (integer counters); the loop around the tree is re-enacted. Run as a program:
FOLDER STREAMS FIRST.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kvcache_sim.replay.request import REPLAYERS, ReplayRequest

from engine_oracles import sglang_older, sglang_passes
from engine_oracles.sglang_passes import STRATEGIES, Req, Rows, Theirs
from engine_oracles.streams import compare_streams, digest, stream, unequal
from engine_oracles.stubs import Real


def asked(seed: int) -> tuple[ReplayRequest, str]:
    """Return a stream, with a capacity that is at times barely sufficient or too small, and a strategy."""
    draw = random.Random(seed)
    trace, page = stream(draw), draw.choice([1, 4, 16])
    longest = int((trace.input_tokens + trace.output_tokens).max())
    pages = max(2, (longest + draw.randint(-2, 3) * page + draw.randint(0, 2 * longest)) // page)
    outputs = draw.choice(["prompt", "computed", "computed"])
    window = draw.choice([0, 4])
    return ReplayRequest(trace, page, pages, window=window, outputs=outputs), draw.choice(STRATEGIES)


class Running:
    """A request in the tree: its lock and its length."""

    def __init__(self, theirs: Theirs, trace: Any, request: int, total: int) -> None:
        self.theirs, self.n, self.total = theirs, int(trace.input_tokens[request]), total
        self.req = Req(trace, request, total - self.n)
        found = theirs.real.base.MatchPrefixParams(
            key=theirs.real.radix.RadixKey(self.req.origin_input_ids[: self.n - 1], None)
        )
        matched = theirs.cache.match_prefix(found)
        self.hit = int(matched.device_prefix_len)
        self.req.prefix_len = self.req.kv.cache_protected_len = self.hit
        self.req.lock = theirs.cache.lock(matched.last_device_node)

    def paged(self, tokens: int) -> int:
        return -(-tokens // self.theirs.page) * self.theirs.page

    @property
    def slack(self) -> int:
        return self.theirs.page if self.theirs.page > 1 else 0

    def lacks_capacity(self) -> bool:
        spare = self.theirs.pool.free_tokens + self.theirs.cache.evictable_size()
        return bool(spare < self.paged(self.total) - self.hit + self.slack)

    def compute(self) -> None:
        """Prefill, check the prompt in, decode."""
        theirs = self.theirs
        theirs.evict(self.n - self.hit + self.slack)
        theirs.pool.free_tokens -= self.paged(self.n) - self.hit
        theirs.check_in(self.req, self.n)
        for position in range(self.n, self.total):
            theirs.evict(theirs.page)
            if position % theirs.page == 0:
                theirs.pool.free_tokens -= theirs.page

    def finish(self) -> None:
        self.theirs.cache.req_to_token_pool = Rows(self.total)
        if sglang_older.finish(self.theirs.cache, self.req, self.total):
            self.theirs.pool.free_tokens += self.paged(self.total) - self.total
            return
        self.theirs.check_in(self.req, self.total)
        self.theirs.pool.free_tokens += self.paged(self.total) - self.req.kv.cache_protected_len
        self.theirs.cache.unlock(self.req.lock)


def run(real: Real, request: ReplayRequest, strategy: str) -> dict[str, Any]:
    """Drive a stream and return figures under the names of ``replay_sglang``."""
    trace, page = request.trace, request.block_size_tokens
    theirs = Theirs(real, page, request.capacity_blocks * page, strategy)
    running, hits, forced = list[Running](), list[int](), 0
    for number, n in enumerate(trace.input_tokens.tolist()):
        output = int(trace.output_tokens[number]) if request.outputs == "computed" else 1
        if request.window and len(running) == request.window:
            running.pop(0).finish()
        now = Running(theirs, trace, number, n + max(output - 1, 0))
        while now.lacks_capacity() and running:
            running.pop(0).finish()
            forced += 1
        if now.lacks_capacity():
            theirs.cache.unlock(now.req.lock)
            hits.append(-1)
            continue
        hits.append(now.hit)
        now.compute()
        running.append(now)
        if not request.window:
            running.pop(0).finish()
    while running:
        running.pop(0).finish()
    cache = theirs.cache
    return {
        "hit_tokens": sum(hit for hit in hits if hit >= 0),
        "per_request_hit_tokens_sha256": digest(hits),
        "forced_finishes": forced,
        "final_free_tokens": theirs.pool.free_tokens,
        "final_tree_tokens": cache.evictable_size() + cache.protected_size(),
        "final_leaves": len(cache.evictable_leaves),
    }


def differs(real: Real, seed: int) -> str | None:
    """Return how a stream differs, None where it is equal."""
    request, strategy = asked(seed)
    return unequal(REPLAYERS["sglang"](request, strategy), run(real, request, strategy), strategy)


if __name__ == "__main__":
    sys.exit(compare_streams("SGLang RadixCache", sglang_passes.load, differs, *sys.argv[1:4]))
