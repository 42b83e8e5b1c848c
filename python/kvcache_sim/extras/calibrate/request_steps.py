"""The steps behind a log of requests, inferred from token times and the order of prefills.

A request that decodes takes one step per token, so the time between its first and last token is the time of
as many steps. These are steps that computed a chunk of another prompt, and pure decode steps of the sequences
that decoded at the same time. A prompt that did not wait for another prompt takes its chunks' steps and half
of the step in progress at its arrival.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.extras.calibrate.rows import IterationRows

#: First tokens closer than this, in s, came from one step: the resolution of the client's clock.
_TOGETHER_S = 0.5e-3

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TimedRequests:
    """Requests by column: sending time (s), latencies, lengths; ``cached_tokens`` were cache hits.

    All are finished, have more than one output token if they have a TPOT, and are in sending order.
    """

    sent_s: Floats
    ttft_s: Floats
    e2e_s: Floats
    prompt_tokens: Floats
    output_tokens: Floats
    cached_tokens: Floats

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.sent_s)


@dataclass(frozen=True, slots=True)
class MeasuredSums:
    """Measured times as sums of steps: times between first and last tokens, then times to first tokens.

    ``steps`` holds one average pure decode step for each of the former, the steps of all prompts' chunks, and
    for each of the latter the decode step in progress. ``request`` is the request of each time.
    """

    steps: IterationRows
    measured_ms: Floats
    request: NDArray[np.int64]
    #: Number of pure decode steps of each answer.
    decode_counts: Floats
    #: Share of each prompt's chunks in each answer's time, and the prompt of each chunk's step.
    shares: Floats
    prompt_of_chunk: NDArray[np.int64]
    #: The prompt of each first token, and 1 if a decode step was in progress at its arrival.
    first_prompts: NDArray[np.int64]
    met: Floats

    @property
    def to_first(self) -> NDArray[np.bool_]:
        """True for times to a first token, which include the client's constant."""
        return np.arange(len(self.measured_ms)) >= len(self.decode_counts)

    def sums(self, values: Floats) -> Floats:
        """Return the sum over each time's steps of the per-step ``values``, (steps, k) → (times, k)."""
        decodes, chunks = len(self.decode_counts), len(self.prompt_of_chunk)
        of_prompt = np.zeros((self.shares.shape[1], values.shape[1]))
        np.add.at(of_prompt, self.prompt_of_chunk, values[decodes : decodes + chunks])
        answers = self.decode_counts[:, None] * values[:decodes] + self.shares @ of_prompt
        first = of_prompt[self.first_prompts] + 0.5 * self.met[:, None] * values[decodes + chunks :]
        return np.concatenate((answers, first))


@dataclass(frozen=True, slots=True)
class _Prompts:
    """Prompts that ended in the same step: their window, chunks, tokens; ``alone``: index of a single one."""

    begin_s: Floats
    end_s: Floats
    chunks: NDArray[np.int64]
    new: Floats
    past: Floats
    count: Floats
    alone: NDArray[np.int64]
    waited: NDArray[np.bool_]


def measured_sums(log: TimedRequests, max_num_batched_tokens: int) -> MeasuredSums:
    """Return the times between first and last tokens, and to first tokens that waited for no other prompt."""
    first, last = log.sent_s + log.ttft_s, log.sent_s + log.e2e_s
    prompts = _prompts(log, first, max_num_batched_tokens)
    load = _Load(log, first, last)
    decodes = np.flatnonzero((log.output_tokens > 1) & (last > first))
    running, kv = load.mean(first[decodes], last[decodes])
    at_end = load.at(np.nextafter(prompts.end_s, -np.inf))
    lone = np.flatnonzero((prompts.alone >= 0) & ~prompts.waited)
    arrived = prompts.alone[lone]
    met = load.at(log.sent_s[arrived])
    chunk_of = np.repeat(np.arange(len(prompts.chunks)), prompts.chunks)
    position = np.arange(len(chunk_of)) - np.repeat(
        np.cumsum(prompts.chunks) - prompts.chunks, prompts.chunks
    )
    each_new = prompts.new[chunk_of] / prompts.chunks[chunk_of]
    steps = _rows(
        prefill_tokens=np.concatenate((np.zeros(len(decodes)), each_new, np.zeros(len(lone)))),
        chunks=np.concatenate((np.zeros(len(decodes)), prompts.count[chunk_of], np.zeros(len(lone)))),
        past=np.concatenate(
            (np.zeros(len(decodes)), prompts.past[chunk_of] + position * each_new, np.zeros(len(lone)))
        ),
        sequences=np.concatenate((np.maximum(running, 1), at_end[0][chunk_of], met[0])),
        kv=np.concatenate((kv, at_end[1][chunk_of], met[1])),
    )
    shares = _overlap(first[decodes], last[decodes], prompts)
    counts = np.maximum(log.output_tokens[decodes] - 1 - shares @ prompts.chunks, 0.0)
    measured = np.concatenate((last[decodes] - first[decodes], log.ttft_s[arrived]))
    met_one = (met[0] > 0).astype(np.float64)
    request = np.concatenate((decodes, arrived))
    return MeasuredSums(steps, 1e3 * measured, request, counts, shares, chunk_of, lone, met_one)


class _Load:
    """The number of decoding sequences and their KV over time, with evenly spaced tokens."""

    def __init__(self, log: TimedRequests, first: Floats, last: Floats) -> None:
        self._first, self._last, self._log = first, last, log
        self._rate = np.where(last > first, (log.output_tokens - 1) / np.maximum(last - first, 1e-12), 0.0)

    def at(self, times: Floats) -> tuple[Floats, Floats]:
        """Return the decoding sequences and their KV tokens at each time."""
        here = (self._first <= times[:, None]) & (times[:, None] < self._last)
        grown = np.where(here, self._rate * (times[:, None] - self._first), 0.0)
        return here.sum(axis=1).astype(np.float64), here @ self._log.prompt_tokens + grown.sum(axis=1)

    def mean(self, begin: Floats, end: Floats) -> tuple[Floats, Floats]:
        """Return the same, averaged over each interval."""
        left = np.maximum(self._first, begin[:, None])
        right = np.minimum(self._last, end[:, None])
        inside = np.maximum(right - left, 0.0)
        grown = self._rate * ((left + right) / 2 - self._first)
        length = np.maximum(end - begin, 1e-12)
        kv = (inside * (self._log.prompt_tokens + grown)).sum(axis=1) / length
        return inside.sum(axis=1) / length, kv


def _prompts(log: TimedRequests, first: Floats, budget: int) -> _Prompts:
    order = np.argsort(first, kind="stable")
    starts = np.flatnonzero(np.diff(first[order], prepend=-np.inf) > _TOGETHER_S)
    group = np.searchsorted(starts, np.arange(len(order)), side="right") - 1
    new = np.maximum(log.prompt_tokens - log.cached_tokens, 1)[order]
    total = np.bincount(group, new)
    end = first[order][np.append(starts[1:], len(order)) - 1]
    sent = np.full(len(starts), np.inf)
    np.minimum.at(sent, group, log.sent_s[order])
    before = np.concatenate(([-np.inf], end[:-1]))
    count = np.bincount(group).astype(np.float64)
    # A prompt has waited if another prompt was being computed at its arrival.
    waited = sent < np.maximum.accumulate(before)
    return _Prompts(
        np.minimum(np.maximum(sent, before), end),
        end,
        np.ceil(total / budget).astype(np.int64),
        np.asarray(total, np.float64),
        np.asarray(np.bincount(group, log.cached_tokens[order]), np.float64),
        count,
        np.where(count == 1, order[starts], -1),
        waited,
    )


def _overlap(begin: Floats, end: Floats, prompts: _Prompts) -> Floats:
    """Return the share of each prompt's prefill time that lies in each interval."""
    left = np.maximum(begin[:, None], prompts.begin_s)
    right = np.minimum(end[:, None], prompts.end_s)
    return np.asarray(
        np.clip((right - left) / np.maximum(prompts.end_s - prompts.begin_s, 1e-9), 0.0, 1.0), np.float64
    )


def _rows(
    prefill_tokens: Floats, chunks: Floats, past: Floats, sequences: Floats, kv: Floats
) -> IterationRows:
    n = np.rint(sequences)
    return IterationRows(
        prefill_tokens=np.rint(prefill_tokens),
        prefill_requests=chunks,
        past_tokens=past,
        decode_sequences=n,
        decode_kv_tokens=np.where(n > 0, kv, 0.0),
        decode_max_kv_tokens=np.where(n > 0, kv / np.maximum(n, 1), 0.0),
        tensor_parallel=np.ones(len(n)),
        iter_ms=np.ones(len(n)),
    )
