"""A closed loop of clients against one engine, step by step, with measured kernels."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.extras.calibrate.server_runs import Launch

#: (prompt tokens, past, decodes, their KV) → ms.
StepTimes = Callable[[int, int, int, int], float]
#: Times between a client and the scheduler: ``replica.host: vllm-http``, and per token ``http-tokenised``.
CLIENT_MS, CLIENT_MS_PER_TOKEN = 8.0, 0.0006
_NEVER = -math.inf
_MANY = 1 << 60


@dataclass(frozen=True, slots=True)
class Load:
    """Requests by their lengths, in sending order: each client sends the next one after its answer."""

    clients: int
    prompts: Sequence[int]
    outputs: Sequence[int]


@dataclass(frozen=True, slots=True)
class LoopTimes:
    """One row per request: ms of decode steps, of prompts in steps, and in total.

    ``waits`` is the time from sending a request to its first token; ``answers`` from there to its last token.
    """

    waits: NDArray[np.float64]
    answers: NDArray[np.float64]


def closed_loop(times: StepTimes, launch: Launch, load: Load) -> LoopTimes:
    """Return the times of every request of a load; one call of ``times`` per run of equal decode steps."""
    loop = _Loop(times, launch, load)
    loop.run()
    return LoopTimes(loop.first - loop.sent, loop.done - loop.first)


@dataclass(slots=True)
class _Loop:
    times: StepTimes
    launch: Launch
    load: Load
    #: Decode ms, prompt ms and total ms until now.
    clock: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    #: Start of the current step: with overlap the next step is scheduled then.
    decided_ms: float = _NEVER
    decode_steps: int = 0
    since_poll: int = _MANY
    sequences: int = 0
    kv_tokens: int = 0
    #: Requests in transit: the time at which the scheduler can see each, and its index.
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    queue: list[int] = field(default_factory=list)
    #: Computed tokens of the queue's first prompt.
    started_tokens: int = 0
    #: The decode step that produces a running request's last token.
    ends: list[tuple[int, int]] = field(default_factory=list)
    sent: NDArray[np.float64] = field(init=False)
    first: NDArray[np.float64] = field(init=False)
    done: NDArray[np.float64] = field(init=False)
    sent_requests: int = 0
    open_requests: int = field(init=False)

    def __post_init__(self) -> None:
        self.open_requests = len(self.load.prompts)
        self.sent, self.first, self.done = (np.zeros((self.open_requests, 3)) for _ in range(3))

    def run(self) -> None:
        for _ in range(self.load.clients):
            self._send()
        while self.open_requests:
            if not self.sequences and not self.queue:
                self.clock[2] = max(self.clock[2], self.arrivals[0][0])
                self.decided_ms, self.since_poll = self.clock[2], _MANY
            self._poll()
            if self.queue:
                self._step_with_prompts()
            else:
                self._decode_steps()

    def _send(self) -> None:
        request = self.sent_requests
        if request < len(self.load.prompts):
            self.sent[request] = self.clock
            offset = CLIENT_MS + CLIENT_MS_PER_TOKEN * self.load.prompts[request]
            heapq.heappush(self.arrivals, (self.clock[2] + offset, request))
            self.sent_requests += 1

    def _poll(self) -> None:
        if self.since_poll < self.launch.poll_steps:
            return
        self.since_poll = 0
        seen = self.decided_ms if self.launch.overlapped else self.clock[2]
        while self.arrivals and self.arrivals[0][0] <= seen:
            self.queue.append(heapq.heappop(self.arrivals)[1])

    def _step_with_prompts(self) -> None:
        alongside = self.sequences if self.launch.with_decodes else 0
        new, past, whole = self._chunks(self.launch.budget_tokens - alongside)
        kv = self.kv_tokens if alongside else 0
        step = self.times(new, past, alongside, kv)
        decode = min(self.times(0, 0, alongside, kv), step) if alongside else 0.0
        self._pass(decode, step - decode)
        self.decided_ms = self.clock[2] - step
        ended: list[int] = []
        if alongside:
            self.decode_steps += 1
            self.kv_tokens += alongside
            ended = self._ended()
        self.since_poll = _MANY
        for request in whole:
            self.first[request] = self.clock
            self.sequences += 1
            self.kv_tokens += self.load.prompts[request] + 1
            heapq.heappush(self.ends, (self.decode_steps + self.load.outputs[request] - 1, request))
        self._finish(ended + self._ended())

    def _chunks(self, budget: int) -> tuple[int, int, list[int]]:
        """Return prompt tokens of a step, the tokens they read, and the prompts that end in it."""
        new = past = 0
        whole: list[int] = []
        for request in self.queue:
            take = min(budget - new, self.load.prompts[request] - self.started_tokens)
            if take <= 0:
                break
            new, past = new + take, past + self.started_tokens
            self.started_tokens += take
            if self.started_tokens == self.load.prompts[request]:
                whole.append(request)
                self.started_tokens = 0
        del self.queue[: len(whole)]
        return new, past, whole

    def _decode_steps(self) -> None:
        steps = self.ends[0][0] - self.decode_steps
        if self.arrivals:
            steps = min(steps, self._steps_until_seen())
        middle_kv = self.kv_tokens + self.sequences * (steps - 1) // 2
        each = self.times(0, 0, self.sequences, middle_kv)
        self._pass(steps * each, 0.0)
        self.decided_ms = self.clock[2] - each
        self.decode_steps += steps
        # Polls without a new request have passed meanwhile; the last step may have made a poll due.
        self.since_poll = (self.since_poll + steps - 1) % self.launch.poll_steps + 1
        self.kv_tokens += steps * self.sequences
        self._finish(self._ended())

    def _steps_until_seen(self) -> int:
        """Return the number of decode steps until the scheduler may find the next arrival, at least one."""
        if self.launch.poll_steps > 1:
            return max(1, self.launch.poll_steps - self.since_poll)
        each = self.times(0, 0, self.sequences, self.kv_tokens)
        return max(1, math.ceil((self.arrivals[0][0] - self.clock[2]) / each))

    def _pass(self, decode_ms: float, prompts_ms: float) -> None:
        self.clock[0] += decode_ms
        self.clock[1] += prompts_ms
        self.clock[2] += decode_ms + prompts_ms

    def _ended(self) -> list[int]:
        ended = []
        while self.ends and self.ends[0][0] <= self.decode_steps:
            ended.append(heapq.heappop(self.ends)[1])
        return ended

    def _finish(self, requests: list[int]) -> None:
        for request in requests:
            self.done[request] = self.clock
            self.sequences -= 1
            self.kv_tokens -= self.load.prompts[request] + self.load.outputs[request]
            self.open_requests -= 1
            self._send()
