"""Random adversarial streams, prompts that share, part, repeat and nearly fill a small cache; and their comparison."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from kvcache_sim.workload.trace import Trace
from support.small_traces import trace_of


def stream(draw: random.Random, longest: tuple[int, ...] = (60, 200, 480)) -> Trace:
    """A stream of 20 to 60 prompts over a few documents, in blocks of 16 tokens; ``longest`` are drawn from."""
    rows, prompts, outputs = [], [], []
    documents = draw.randint(1, 6)
    for request in range(draw.randint(20, 60)):
        prompt = draw.randint(1, draw.choice(longest))
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


def repeated(trace: Trace, draw: random.Random) -> Trace:
    """Return a trace whose prompts come again after it, in another order and at its intervals."""
    order = [*range(len(trace)), *draw.sample(range(len(trace)), len(trace))]
    ids = [trace.block_ids[a:b] for a, b in pairwise(trace.id_offsets)]
    rows = [ids[at].tolist() for at in order]
    arrivals = [*trace.arrival_ns, *(trace.arrival_ns + trace.arrival_ns[-1])]
    tokens, outputs = trace.input_tokens[order], trace.output_tokens[order]
    return replace(trace_of(rows, trace.block_size, tokens, arrivals, outputs), id_names=trace.id_names)


def tokens_of(trace: Trace, request: int, total: int) -> list[int]:
    """The value of every token: its id's name, or -1 - request where it is generated."""
    n = int(trace.input_tokens[request])
    a, b = trace.id_offsets[request], trace.id_offsets[request + 1]
    names = [int(trace.id_names[i]) for i in trace.block_ids[a:b]]
    return [names[k // 16] if k < n else -1 - request for k in range(total)]


class Refused(Exception):
    """A release does not take the model of a stream."""


def compare_streams(
    name: str,
    load: Callable[[Path], Any],
    differs: Callable[[Any, int], str | None],
    wheel: str | Path,
    streams: str | int,
    first: str | int,
) -> int:
    """Compare streams, from a first seed on, with the classes of a wheel; return the exit code.

    Prints the release, what was stood in for, the first stream that differs and how many are equal. A release that
    the stand-ins do not carry is "not driven".
    """
    folder, streams, first, wrongs, refused = Path(wheel), int(streams), int(first), 0, 0
    name = f"{name} ({folder.name})"
    try:
        real = load(folder)
        print(f"{name}: stood in for {', '.join(real.stubbed)}")
        for seed in range(first, first + streams):
            try:
                wrong = differs(real, seed)
            except Refused:
                refused += 1
                continue
            if wrong and not wrongs:
                print(f"{name}: stream {seed} differs (ours, theirs): {wrong}")
            wrongs += bool(wrong)
    except Exception as error:
        traceback.print_exc()
        print(f"{name}: not driven, {type(error).__name__}: {error}", flush=True)
        return 1
    equal = f"{streams - refused - wrongs} of {streams} streams equal, from {first} on"
    print(f"{name}: {equal}" + f", {refused} refused by the engine" * bool(refused), flush=True)
    return 1 if wrongs or refused else 0


def unequal(ours: dict[str, Any], theirs: dict[str, Any], drawn: Any) -> str | None:
    """Return the figures that differ, None where there is none."""
    wrong = {name: (ours[name], value) for name, value in theirs.items() if ours[name] != value}
    return f"{wrong} under {drawn}" if wrong else None


def digest(values: Iterable[Any]) -> str:
    """Return the SHA-256 of values, a line each, the last one without an end."""
    return sha256("\n".join(map(str, values)).encode()).hexdigest()


def lines_digest(lines: Iterable[Any]) -> str:
    """Return the SHA-256 of lines that all end."""
    return sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def in_chunks(trace: Trace, per: int) -> Trace:
    """Return a trace whose ids are chunks of some blocks: each names its own blocks, and those before it."""
    ids, offsets = trace.block_ids.tolist(), trace.id_offsets.tolist()
    rows = [
        [tuple(ids[start : min(end, start + (k + 1) * per)]) for k in range(-(-(end - start) // per))]
        for start, end in pairwise(offsets)
    ]
    tokens, outputs = trace.input_tokens.tolist(), trace.output_tokens.tolist()
    coarse = trace_of(rows, trace.block_size * per, tokens, trace.arrival_ns, outputs)
    return replace(coarse, id_names=np.arange(int(coarse.block_ids.max()) + 1, dtype=np.int64))
