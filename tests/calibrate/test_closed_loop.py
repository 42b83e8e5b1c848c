"""A closed loop in step runs equals a step-by-step loop with a record per request."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.extras.calibrate.closed_loop import CLIENT_MS, CLIENT_MS_PER_TOKEN, Load, closed_loop
from kvcache_sim.extras.calibrate.server_runs import Launch
from support.examples import examples


def times(new: int, past: int, decodes: int, kv_tokens: int) -> float:
    """Steps of a model whose figures are all exact in binary, so that no rounding decides a tie."""
    return 4.0 * (new + decodes > 0) + new / 64 + past / 1024 + decodes / 8 + kv_tokens / 4096


@dataclass
class Request:
    prompt: int
    output: int
    seen_ms: float = 0.0
    sent_ms: float = 0.0
    done: int = 0
    said: int = 0
    first_ms: float = 0.0
    last_ms: float = 0.0


class StepByStep:
    """The same rules over a list of requests, one step at a time, nothing kept in sums."""

    def __init__(self, launch: Launch, load: Load) -> None:
        self.launch = launch
        self.waiting = [Request(p, o) for p, o in zip(load.prompts, load.outputs, strict=True)]
        self.all = list(self.waiting)
        self.sent: list[Request] = []
        self.queue: list[Request] = []
        self.running: list[Request] = []
        self.now = 0.0
        for _ in range(load.clients):
            self.send()
        self.decided, self.steps_since = float("-inf"), 10**9

    def send(self) -> None:
        if self.waiting:
            one = self.waiting.pop(0)
            one.sent_ms = self.now
            one.seen_ms = self.now + CLIENT_MS + CLIENT_MS_PER_TOKEN * one.prompt
            self.sent.append(one)

    def run(self) -> list[Request]:
        while any(one.said < one.output for one in self.all):
            if not self.running and not self.queue:
                self.now = max(self.now, min(one.seen_ms for one in self.sent))
                self.decided, self.steps_since = self.now, 10**9
            if self.steps_since >= self.launch.poll_steps:
                until = self.decided if self.launch.overlapped else self.now
                seen = sorted((one for one in self.sent if one.seen_ms <= until), key=lambda r: r.seen_ms)
                self.sent = [one for one in self.sent if one.seen_ms > until]
                self.queue += seen
                self.steps_since = 0
            self.step()
        return self.all

    def step(self) -> None:
        prompts = bool(self.queue)
        decoding = [] if prompts and not self.launch.with_decodes else list(self.running)
        capacity, new, past, ended = self.launch.budget_tokens - len(decoding), 0, 0, []
        for one in list(self.queue):
            take = min(capacity, one.prompt - one.done)
            if take <= 0:
                break
            new, past, capacity = new + take, past + one.done, capacity - take
            one.done += take
            if one.done == one.prompt:
                ended.append(one)
        kv = sum(one.prompt + one.said for one in decoding)
        self.decided = self.now
        self.now += times(new, past, len(decoding), kv)
        self.steps_since = 10**9 if prompts else self.steps_since + 1
        for one in decoding:
            one.said += 1
        for one in ended:
            self.queue.remove(one)
            self.running.append(one)
            one.first_ms, one.said = self.now, 1
        order = [one for one in (*decoding, *ended) if one.said == one.output]
        for one in sorted(order, key=self.all.index):
            one.last_ms = self.now
            self.running.remove(one)
            self.send()


LAUNCHES = st.builds(
    Launch,
    budget_tokens=st.sampled_from([96, 256, 1024]),
    with_decodes=st.booleans(),
    overlapped=st.booleans(),
    poll_steps=st.sampled_from([1, 1, 3, 10]),
)


@examples(25)
@given(LAUNCHES, st.integers(1, 6), st.lists(st.tuples(st.integers(1, 400), st.integers(2, 30)), min_size=6))
def test_stretches_equal_single_steps(launch, clients, lengths):
    load = Load(clients, [p for p, _ in lengths], [o for _, o in lengths])
    found = closed_loop(times, launch, load)
    slow = StepByStep(launch, load).run()
    # A stretch takes the KV of its middle; equal as long as steps are linear in it.
    assert found.waits[:, 2] == pytest.approx([one.first_ms - one.sent_ms for one in slow], abs=0.05)
    assert found.answers[:, 2] == pytest.approx([one.last_ms - one.first_ms for one in slow], abs=0.05)
