"""Random adversarial streams: prompts that share, part, repeat and nearly fill a small cache."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
from kvcache_sim.workload.trace import Trace
from small_traces import trace_of


def stream(draw: random.Random) -> Trace:
    """A stream of 20 to 60 prompts over a few documents, in blocks of 16 tokens."""
    rows, prompts, outputs = [], [], []
    documents = draw.randint(1, 6)
    for request in range(draw.randint(20, 60)):
        prompt = draw.randint(1, draw.choice([60, 200, 480]))
        if draw.random() < 0.5:
            prompt = max(16, prompt // 16 * 16)
        blocks = -(-prompt // 16)
        common = draw.randint(0, blocks)
        document = draw.randrange(documents)
        # a partial id is its prompt's own
        common = min(common, prompt // 16)
        own = 1_000_000 + 1000 * request
        rows.append([1000 * document + k if k < common else own + k for k in range(blocks)])
        prompts.append(prompt)
        outputs.append(draw.randint(1, 64))
    names = list(dict.fromkeys(name for row in rows for name in row))
    return replace(trace_of(rows, 16, prompts, None, outputs), id_names=np.array(names, np.int64))


def tokens_of(trace: Trace, request: int, total: int) -> list[int]:
    """The value of every token: its id's name, or -1 - request where it is generated."""
    n = int(trace.input_tokens[request])
    a, b = trace.id_offsets[request], trace.id_offsets[request + 1]
    names = [int(trace.id_names[i]) for i in trace.block_ids[a:b]]
    return [names[k // 16] if k < n else -1 - request for k in range(total)]
