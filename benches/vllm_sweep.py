"""Batches of every size, length and mixture, made by a vLLM engine from requests of its own."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any

from vllm_engine import Recorder, new_request

SEQUENCES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
LENGTHS = (128, 512, 1024, 2048, 4096, 8192, 16384)
CHUNKS = (17, 64, 128, 256, 512, 1024, 2048, 4096, 8000)
PASTS = (0, 2048, 12288)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a sweep: tokens of KV, sequences and tokens of a step, seconds, the longest request."""

    kv_tokens: int
    sequences: int
    step_tokens: int
    seconds: float
    length: int


class Sweep:
    """A grid of decoding batches, each joined by a few prompts, visited in an order drawn from a seed."""

    def __init__(self, core: Any, recorder: Recorder, vocabulary: int, seed: int) -> None:
        self._core, self._recorder, self._vocabulary = core, recorder, vocabulary
        self._random = random.Random(seed)
        self._made = 0

    def run(self, limits: Limits) -> int:
        """Visit cells until the seconds are spent; returns the number visited."""
        capacity = min(int(limits.kv_tokens * 0.75), 120_000)
        cells = [
            (n, length, skewed)
            for n in SEQUENCES
            for length in LENGTHS
            for skewed in (False, True)
            if n <= limits.sequences and n * length <= capacity and length + 600 < limits.length
        ]
        self._random.shuffle(cells)
        pasts = [self._park(past, limits) for past in PASTS]
        end, done = time.monotonic() + limits.seconds, 0
        for cell in cells:
            if time.monotonic() > end:
                break
            self._cell(*cell, limits, pasts)
            done += 1
        return done

    def _tokens(self, count: int) -> list[int]:
        return [self._random.randrange(10, self._vocabulary - 10) for _ in range(count)]

    def _send(self, prompt: list[int], output: int) -> None:
        self._made += 1
        request = new_request(self._core, f"sweep-{self._made}", prompt, output)
        self._recorder.add(request, time.perf_counter_ns())

    def _park(self, past: int, limits: Limits) -> list[int]:
        """Compute a prompt once, so that the prefix cache has it."""
        past = min(past, limits.length // 2, limits.kv_tokens // 6)
        prompt = self._tokens(past)
        if past:
            self._send([*prompt, 7], 1)
            self._drain()
        return prompt

    def _drain(self) -> None:
        while self._recorder.busy():
            self._recorder.step()

    def _cell(self, n: int, length: int, skewed: bool, limits: Limits, pasts: list[list[int]]) -> None:
        """Decode n sequences of about a length, add prompts in between, then let the sequences end one by
        one.
        """
        draw = self._random
        lengths = [
            max(16, int(length * (draw.lognormvariate(-0.3, 0.8) if skewed else draw.uniform(0.8, 1.2))))
            for _ in range(n)
        ]
        lengths = [min(one, limits.length - 600) for one in lengths]
        filling = sum(lengths) // limits.step_tokens + 2
        for index, one in enumerate(lengths):
            self._send(self._tokens(one), filling + 26 + index * 10 // n)
        chunks = draw.sample(CHUNKS, 5)
        for step in range(filling + 25):
            if step >= filling + 6 and (step - filling) % 4 == 2 and chunks:
                past = draw.choice(pasts)
                new = min(chunks.pop(), limits.step_tokens - n, limits.length - len(past) - 8)
                self._send(past + self._tokens(max(new, 1)), 2)
            if self._recorder.busy():
                self._recorder.step()
        self._drain()
