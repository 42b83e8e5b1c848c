"""Random requests of engine replays, and the causes of their misses that the prompts alone decide."""

from typing import Any

from hypothesis import strategies as st
from kvcache_sim.replay.engine_requests import block_keys
from kvcache_sim.replay.request import REJECTED, ReplayRequest
from support.miss_causes import CAUSES, MissCauses
from support.product.machines import total_tokens
from support.small_traces import tree_traces


@st.composite
def workloads(draw, in_sessions=False):
    """Random prefix trees, cut into pages, with a capacity that is at times too small for a prompt."""
    block = 4 if in_sessions else draw(st.sampled_from([4, 16]))
    trace, page = draw(tree_traces(block)), draw(st.sampled_from([1, 2, 4, block]))
    turns: dict[int, int] = {}
    for request in range(len(trace)) if in_sessions else ():
        session = trace.session[request] = draw(st.integers(-1, 2))
        trace.turn[request] = turns[session] = turns.get(session, -1) + 1
    return ReplayRequest(
        trace,
        block_size_tokens=page,
        capacity_blocks=max(
            1, draw(st.integers(1 if in_sessions else 2, 60 if in_sessions else 40)) * block // page
        ),
        window=draw(st.sampled_from([0, 0, 1, 3])),
        outputs="prompt" if in_sessions else draw(st.sampled_from(["prompt", "computed", "all"])),
        explain=True,
    )


def check_causes(request: ReplayRequest, got: dict[str, Any], last_may_hit: bool = False) -> None:
    """Check what is new, what parts and what fills no block against a model that is given the hits.

    What was shown before is evicted or was not admitted; the first only where the cache evicted at all.
    """
    size, keys, table = request.block_size_tokens, block_keys(request), got["requests"]
    counters = [got[name] for name in ("evictions", "evicted_tokens", "evicted_chunks") if name in got]
    may_evict = not counters or any(counters)
    model, totals = MissCauses(size), total_tokens(request).tolist()
    for number, (n, hit) in enumerate(zip(table["input_tokens"], table["hit_tokens"], strict=True)):
        limit = max((n if last_may_hit else n - 1) // size, hit // size)
        model.count(n, keys.keys(number, limit), max(hit, 0) // size, lambda key: False)
        model.learn(keys.keys(number, totals[number] // size))
        expected = dict(zip(CAUSES, model.tokens[-1], strict=True))
        found = {cause: table[f"{cause}_tokens"][number] for cause in CAUSES if f"{cause}_tokens" in table}
        if hit == REJECTED:
            assert not any(found.values())
            continue
        evicted = found.pop("evicted")
        assert evicted == 0 or may_evict
        assert evicted + found.pop("not_admitted") == expected["evicted"] + expected["not_admitted"]
        assert found == {cause: expected[cause] for cause in found}
