"""Streams of requests for ``record_vllm.py``, each drawn from a seed; Mooncake JSONL, blocks of 16 tokens.

    python benches/vllm_streams.py DIR

Open loop, Poisson arrivals. A later turn of a conversation repeats its prompts so far, with other tokens for
the answers, as random weights give no answers that could be sent back.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Request:
    """Arrival time (s), block numbers, prompt tokens and output tokens of a request."""

    at: float
    blocks: list[int]
    tokens: int
    output: int


class Stream:
    """Draws lengths and fresh block numbers."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self._next = 0

    def blocks(self, tokens: int) -> list[int]:
        """Return numbers of blocks that no other request has."""
        first, self._next = self._next, self._next - (-tokens // BLOCK_SIZE)
        return list(range(first, self._next))

    def length(self, median: float, spread: float, least: int, most: int) -> int:
        """Return a log-normal length within bounds."""
        return min(max(int(self.draw.lognormvariate(0, spread) * median), least), most)

    def arrivals(self, rate: float, seconds: float) -> list[float]:
        """Return Poisson arrivals."""
        found, now = [], self.draw.expovariate(rate)
        while now < seconds:
            found.append(now)
            now += self.draw.expovariate(rate)
        return found


def talks(seed: int, rate: float, seconds: float, scale: float = 1.0) -> list[Request]:
    """Return conversations after four system prompts: each turn repeats the conversation so far."""
    made, found = Stream(seed), []
    systems = [made.blocks(BLOCK_SIZE * int(94 * scale)) for _ in range(4)]
    for start in made.arrivals(rate, seconds):
        blocks, at = list(made.draw.choice(systems)), start
        for _ in range(made.draw.randint(1, 6)):
            own = made.length(250 * scale, 0.8, 20, 3000)
            output = made.length(140, 0.7, 8, 500)
            prompt = blocks + made.blocks(own)
            tokens = len(blocks) * BLOCK_SIZE + own
            found.append(Request(at, prompt, tokens, output))
            blocks = prompt[: tokens // BLOCK_SIZE] + made.blocks(output + 16)
            at += made.draw.uniform(4, 9)
    return [one for one in found if one.at < seconds]


def single(seed: int, rate: float, seconds: float, prompt: tuple[float, float, int, int]) -> list[Request]:
    """Return prompts without shared prefixes, of log-normal lengths (median, spread, least, most)."""
    made = Stream(seed)
    found = []
    for at in made.arrivals(rate, seconds):
        tokens = made.length(*prompt)
        found.append(Request(at, made.blocks(tokens), tokens, made.length(180, 0.6, 10, 700)))
    return found


def bursts(seed: int, seconds: float, most: int) -> list[Request]:
    """Return batches unlike those of ``sweep``: lengths of all kinds at once, in bursts of several rates."""
    made = Stream(seed)
    found: list[Request] = []
    for start, rate in zip(range(0, int(seconds), 5), (3, 20, 8, 35, 1, 12), strict=False):
        for at in made.arrivals(rate, 3):
            tokens = made.length(500, 1.3, 16, most)
            found.append(Request(start + at, made.blocks(tokens), tokens, made.length(100, 0.8, 4, 500)))
    return found


#: The streams by name: for a dense model of 8 billion parameters, and (``moe-…``) for a mixture of 30
#: billion, which leaves little KV capacity on one GPU.
STREAMS: dict[str, Callable[[], list[Request]]] = {
    "bursts": lambda: bursts(11, 30, 12000),
    "talks": lambda: talks(21, 2.6, 45),
    "long": lambda: single(22, 0.8, 45, (11000, 0.5, 3000, 30000)),
    "peak": lambda: single(23, 38.0, 35, (420, 0.9, 20, 4000)),
    "moe-bursts": lambda: bursts(31, 30, 6000),
    "moe-talks": lambda: talks(32, 1.6, 40, 0.6),
    "moe-peak": lambda: single(33, 16.0, 35, (420, 0.9, 20, 4000)),
}


def lines(requests: list[Request]) -> list[str]:
    """Return a stream as lines of a Mooncake trace, in order of arrival."""
    return [
        json.dumps(
            {
                "timestamp": round(one.at * 1000),
                "input_length": one.tokens,
                "output_length": one.output,
                "hash_ids": one.blocks,
            }
        )
        for one in sorted(requests, key=lambda one: one.at)
    ]


def main() -> None:
    """Write every stream into a directory."""
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parse.add_argument("directory", type=Path)
    asked = parse.parse_args()
    asked.directory.mkdir(parents=True, exist_ok=True)
    for name, make in STREAMS.items():
        (asked.directory / f"{name}.jsonl").write_text("\n".join(lines(make())) + "\n")


if __name__ == "__main__":
    main()
