"""The smallest replay there is: no time, no capacity, one request after another (semantics 1)."""

from kvcache_sim.workload.trace import Trace


def prompt_ids(trace: Trace, i: int) -> list[int]:
    return trace.block_ids[trace.id_offsets[i] : trace.id_offsets[i + 1]].tolist()


def replay(trace: Trace, cache_output: bool = True) -> list[int]:
    """Return the cached tokens of each request, block by block and without any cleverness."""
    b = trace.block_size
    n = trace.input_tokens.tolist()
    next_turn: dict[int, int] = {}
    last: dict[int, int] = {}
    for i, session in enumerate(trace.session.tolist()):
        if session >= 0:
            if session in last:
                next_turn[last[session]] = i
            last[session] = i
    cached: set[int] = set()
    hits = []
    for i in range(len(trace)):
        ids = prompt_ids(trace, i)
        run = 0
        while run < (n[i] - 1) // b and ids[run] in cached:
            run += 1
        hits.append(run * b)
        full = ids[: n[i] // b]
        if cache_output and i in next_turn:
            later = prompt_ids(trace, next_turn[i])
            if later[: len(full)] == full:
                covered = n[next_turn[i]] // b
                full = later[: min((n[i] + int(trace.output_tokens[i]) - 1) // b, covered)]
        cached.update(full)
    return hits
