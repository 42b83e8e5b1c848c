"""Other names of the figures, and the words of the pages: ``kvsim help metrics`` and ``glossary``."""

from __future__ import annotations

from textwrap import wrap

from kvcache_sim.metrics.figures import FIGURES

#: Figure, or its group → its name in engines and benchmarks. vLLM and SGLang: their Prometheus names;
#: AIPerf and "vllm bench serve": their reports.
ALSO: dict[str, str] = {
    "requests.preemptions": "vllm:num_preemptions",
    "tokens.input": "vllm:prompt_tokens, sglang:prompt_tokens_total",
    "tokens.output": "vllm:generation_tokens, sglang:generation_tokens_total",
    "tokens.cached": "vllm:prefix_cache_hits (tokens), sglang:cached_tokens_total",
    "cache.token_hit_rate": "vllm:prefix_cache_hits / vllm:prefix_cache_queries, sglang:cache_hit_rate",
    "latency.ttft.<statistic>": "vllm:time_to_first_token_seconds, AIPerf time_to_first_token",
    "latency.tpot.<statistic>": "vllm bench TPOT, vllm:request_time_per_output_token_seconds; AIPerf "
    "inter_token_latency",
    "latency.itl.<statistic>": "vllm bench ITL, vllm:inter_token_latency_seconds; AIPerf "
    "inter_chunk_latency where a chunk is a token",
    "latency.e2e.<statistic>": "vllm bench E2EL, vllm:e2e_request_latency_seconds, AIPerf request_latency",
    "latency.queue.<statistic>": "vllm:request_queue_time_seconds, sglang:queue_time_seconds",
    "throughput.requests_per_s": "AIPerf request_throughput, vllm bench request throughput",
    "throughput.output_tokens_per_s": "AIPerf output_token_throughput, vllm bench output token throughput",
}

#: Word → its meaning here, and its name elsewhere.
WORDS: dict[str, str] = {
    "block": "tokens that are cached together, cache.block_size of them; SGLang: page, LMCache: chunk",
    "block id": "names a block's content and all before it; vLLM: block hash, Mooncake: hash_ids",
    "prefix": "the blocks of a prompt from its first on; only whole prefixes can be reused",
    "hit": "prompt tokens that are not computed, from any tier; vLLM: computed blocks, SGLang: cached tokens",
    "tier": "where KV is kept: gpu, cpu, disk, and those of other machines (remote); SGLang: device, host, "
    "storage",
    "prefill": "computing the prompt tokens that were not cached, in chunks; context phase",
    "decode": "generating the answer, a token a step; generation phase",
    "TTFT": "time to first token: first token - arrival, the sum of its parts to the nanosecond",
    "TPOT": "time per output token: (last - first token) / (output tokens - 1), of two tokens or more",
    "ITL": "inter-token latency: each time between two neighbouring tokens of an answer",
    "E2E": "end to end: last token - arrival",
    "makespan": "time from the first arrival to the last token, which throughput is of",
    "turn": "a request of a session after another one; its prompt repeats what was said",
    "admission": "when a request gets a slot and free blocks on a machine; its hit is counted then",
    "preemption": "a running request loses its blocks and computes its tokens again",
    "eviction": "a block leaves a tier to free capacity: written down (demoted) or discarded",
    "saturated": "a run in which demand exceeds service, or waiting is over half of TTFT and over a step, at "
    "mean and median. Service: the rate of one queue in which these arrivals wait as long. Where that is "
    "below demand, latencies depend on the trace's length",
    "stall": "waiting for KV that is being loaded, not hidden under computing",
    "hand-over": "moving a prompt's KV from a prefill machine to a decode machine; P/D transfer",
    "lag": "of kvsim serve: wall-clock time from a token's simulated moment to its write; lag.parquet has a "
    "row a request, in ns: first_token_lag_ns, and worst_token_lag_ns of all its tokens (-1: it had none)",
    "token_ms": "in a recorded trace: when the client saw each chunk, after arrival; ttft_ms: the first",
    "upper bound": "the hit rate of one unbounded cache, which no policy and no size can pass",
    "held": "of blocks: in use by running requests or by a transfer, so that they cannot be evicted; what "
    "vLLM's kv_cache_usage_perc counts",
    "requests interval": "of a figure: 95 % over other requests of the kind, by drawing blocks of time again",
    "model interval": "of a figure: 90 % over the stated errors of step times, links and memory, taken "
    "as independent; the hull of the run and of two replays, at the slow and at the fast bound",
    "against the best": "of a cell of a sweep: its figure ÷ that of the best cell; of shares the difference; "
    "with the 95 % interval over batches of time or seeds, in pairs; equal if that holds no difference",
    "outcome": "of a request's first look-up: CONVERSATIONAL_HIT (its own session's prefix), "
    "CROSS_REQUEST_HIT (another's), MISS_FULL (nothing), FULL_HIT_NO_PREFILL_NEEDED, "
    "CONVERSATIONAL_MISS_UNEXPECTED_PROMPT (a turn that does not continue its session)",
    "status": "of a request: finished, rejected (it fits no machine), aborted (by its client), failed (lost "
    "with its machine), turned_away (by a full queue)",
    "event kind": "of events.parquet: arrive, admit, preempt, prefix_cache_event (a look-up), prefill_start, "
    "first_token, finish, step, transfer (blocks over an edge), evict",
    "knee": "the cache size from which more capacity starts to pay less",
    "working set": "the cache size that has 99 % of the upper bound's hits",
}

_WIDTH = 80


def metrics_page(word: str = "") -> str:
    """Return the figures, or those that contain a word: name, unit, definition and names elsewhere."""
    lines = ["Figures of summary.json, by the names that --fail-if, --pareto and sweeps take"]
    for figure in FIGURES:
        if word.lower() not in f"{figure.name} {ALSO.get(figure.name, '')}".lower():
            continue
        unit = f" [{figure.unit}]" if figure.unit else ""
        lines += ["", f"{figure.name}{unit}", *_indented(figure.meaning)]
        if figure.name in ALSO:
            lines += _indented(f"also: {ALSO[figure.name]}")
    return "\n".join(lines)


def glossary_page(word: str = "") -> str:
    """Return the words of the pages with their meanings, sorted; or those that contain a word."""
    lines = ["Words, and what others call them. Figures: kvsim help metrics."]
    for term in sorted(WORDS, key=str.lower):
        if word.lower() in f"{term} {WORDS[term]}".lower():
            lines += ["", term, *_indented(WORDS[term])]
    return "\n".join(lines)


def _indented(text: str) -> list[str]:
    return wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
