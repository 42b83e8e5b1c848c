"""Tokens from hash ids: parity seeding, and every token of a trace into one reused buffer.

``pytest benches/bench_tokens.py --benchmark-timer=time.process_time`` shows CPU seconds, and the peak of
resident memory. Without ../shared a trace of the same shape is generated.
"""

from __future__ import annotations

import resource

import numpy as np
import pytest
from kvcache_sim import _core, rng
from kvcache_sim.workload.readers import read_trace
from kvcache_sim.workload.tokens import PromptConfig, token_batches
from kvcache_sim.workload.trace import Trace
from support.shared_files import ROOT
from support.token_rows import Row, trace_of

BASE_SEED = rng.derive_seed(42, "dataset.prompt.corpus")
IDS = 182_790
CONVERSATION = ROOT.parent / "shared" / "traces" / "conversation_trace.jsonl"


def conversations() -> Trace:
    """The conversation trace, or rows of its mean length that share a prefix."""
    if CONVERSATION.exists():
        return read_trace(CONVERSATION)
    return trace_of([Row(12_000, [*range(9), *range(9 + 15 * k, 24 + 15 * k)]) for k in range(12_031)], 512)


def peak_mib() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def test_parity_seeding(benchmark):
    """The SHA-256 seed and CPython's first draw of each id of the conversation trace."""

    def draw() -> np.ndarray:
        return _core.first_randrange(_core.seeds_of_ids(f"{BASE_SEED}:hash_id:", np.arange(IDS)), 1_000_000)

    assert len(benchmark(draw)) == IDS


@pytest.mark.parametrize("corpus", ["counting", "listed"])
def test_tokens_of_a_whole_trace(benchmark, corpus):
    """Seeding included; ``listed`` copies real token ids instead of counting."""
    trace = conversations()
    tokens = 1_000_000 if corpus == "counting" else np.arange(1_000_000, dtype=np.uint32)
    config = PromptConfig(tokens, trace.block_size)
    total = benchmark(lambda: sum(len(batch.tokens) for batch in token_batches(trace, config, BASE_SEED)))
    assert total == int(trace.input_tokens.sum())
    benchmark.extra_info["M tokens/s"] = round(total / benchmark.stats.stats.min / 1e6)
    benchmark.extra_info["peak resident MiB"] = peak_mib()
