"""The causes of the blocks that an engine missed, from its events."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kvcache_sim.extras.live.shadow.caches import prompts_of
from kvcache_sim.extras.live.shadow.following import Engine
from kvcache_sim.metrics.columns import miss_column
from kvcache_sim.metrics.miss_causes import miss_causes
from kvcache_sim.metrics.ttft_parts import ROWS
from kvcache_sim.replay.miss_causes import reported_by


def missed_blocks(engine: Engine) -> dict[str, int]:
    """Return the missed blocks of an engine's counted lookups by cause; they sum to all that it missed.

    Lookups follow one another, and all of an engine's media count as one cache. Cost: linear in the blocks.
    """
    kept = engine.look_ups
    if not kept:
        return {}
    prompts = prompts_of(kept, engine.state.block_size)
    block, trace = prompts.block_size_tokens, prompts.trace
    at_ns = np.arange(len(kept), dtype=np.int64)
    found = np.array([min(each.found + each.found_below, each.prompt) for each in kept], np.int64)
    none = np.zeros(len(kept), np.int64)
    rows = {
        "request": at_ns,
        **{part.column: none for part in ROWS},
        **dict.fromkeys(("status", "machine"), none),
        **dict.fromkeys(("first_token_ns", "finish_ns"), at_ns),
        "decode_machine": none - 1,
        "input_tokens": trace.input_tokens,
        "output_tokens": trace.output_tokens,
        "cached_prefix_length_used": found * block,
    }
    columns = miss_causes(rows, trace, block, engine.state.has_evicted)
    counted = slice(engine.warming, None)
    blocks = {
        cause.name: int(columns[miss_column(cause)][counted].sum()) // block
        for cause in reported_by("timed")
        if cause.name != "shorter"  # the token behind whole blocks, which prompts_of adds
    }
    return {name: count for name, count in blocks.items() if count}


def causes_text(engines: Iterable[Engine]) -> str:
    """Return the shares of the causes in what engines missed; empty without misses."""
    total: dict[str, int] = {}
    for engine in engines:
        for name, count in missed_blocks(engine).items():
            total[name] = total.get(name, 0) + count
    missed = sum(total.values())
    shares = ", ".join(f"{count / missed:.1%} {name.replace('_', ' ')}" for name, count in total.items())
    return f"of {missed:,} missed blocks {shares} (reference/miss-causes)" if missed else ""
