"""Slow, plain schedulers after vLLM v1's rules: the oracle of the RTX 4090 run and of asynchronous
scheduling.

One step at a time: running requests first, each with the tokens it still has to compute, within the budget; a
request that cannot get a block preempts the last running one, which starts again at the front of the queue;
then waiting requests in order, each only if its whole prompt fits (after its cached prefix), unless something
was
preempted in this step. Blocks are keyed from scheduling on and freed tail first.

``simulate_async`` decides on a step while the one before it runs, as vLLM does with ``--async-scheduling``: a
sequence in flight counts a placeholder for the token that has not come
(``v1/core/sched/async_scheduler.py``), one
whose placeholder is its last token by ``max_tokens`` is not scheduled again, one that will stop at a token
is, and
what a request holds is given back when its last token has come (``EngineCore.step_with_batch_queue``).
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from kvcache_sim.model.step_time import StepBatch, StepTimeTable

BLOCK = 16


@dataclass
class Request:
    arrival_ns: int
    prompt: int
    output: int
    ids: list[int]
    number: int
    generated: int = 0
    computed: int = 0
    target: int = 0
    #: Tokens that a step in flight will bring.
    coming: int = 0
    keyed: int = 0
    blocks: list[int] = field(default_factory=list)
    first_ns: int = -1
    end_ns: int = -1

    @property
    def tokens(self) -> int:
        return self.prompt + self.generated

    @property
    def to_compute(self) -> int:
        return self.tokens + self.coming - self.computed

    def key(self, index: int) -> tuple[int, ...]:
        shared = (index + 1) * BLOCK <= self.prompt and index < len(self.ids)
        return (self.ids[index],) if shared else (-1, self.number, index)


def requests_of(rows: list[dict]) -> list[Request]:
    """Return the requests of a trace's rows."""
    names = ("input_length", "output_length", "hash_ids")
    return [
        Request(round(row["timestamp"] * 1e6), *(row[name] for name in names), number)
        for number, row in enumerate(rows)
    ]


class Pool:
    def __init__(self, blocks: int, caching: bool) -> None:
        self.free = OrderedDict.fromkeys(range(blocks))
        self.holders = [0] * blocks
        self.key_of: list[tuple[int, ...] | None] = [None] * blocks
        self.cached: dict[tuple[int, ...], int] = {}
        self.caching = caching

    def hits(self, request: Request) -> list[int]:
        found: list[int] = []
        for index in range((request.tokens - 1) // BLOCK if self.caching else 0):
            block = self.cached.get(request.key(index))
            if block is None:
                break
            found.append(block)
        return found

    def hold(self, blocks: list[int]) -> None:
        for block in blocks:
            if self.holders[block] == 0:
                del self.free[block]
            self.holders[block] += 1

    def take(self, count: int) -> list[int]:
        taken = [self.free.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            key = self.key_of[block]
            if key is not None and self.cached.get(key) == block:
                del self.cached[key]
            self.key_of[block], self.holders[block] = None, 1
        return taken

    def release(self, blocks: list[int]) -> None:
        unkeyed: list[int] = []
        for block in reversed(blocks):
            self.holders[block] -= 1
            if self.holders[block] == 0:
                self.free[block] = None
                if self.key_of[block] is None:
                    unkeyed.append(block)
        for block in reversed(unkeyed):
            self.free.move_to_end(block, last=False)

    def grow(self, request: Request, new: int) -> bool:
        """Allocate blocks for ``new`` more tokens and key the full ones; return False if too few are free."""
        needed = -(-(request.computed + new) // BLOCK) - len(request.blocks)
        if needed > len(self.free):
            return False
        request.blocks += self.take(max(needed, 0))
        if self.caching:
            full = min(request.computed + new, request.prompt + request.output - 1) // BLOCK
            for index in range(request.keyed, full):
                block, key = request.blocks[index], request.key(index)
                if self.key_of[block] is None:
                    self.key_of[block] = key
                    self.cached.setdefault(key, block)
            request.keyed = max(request.keyed, full)
        return True


def simulate(requests: list[Request], table: StepTimeTable, pool: Pool, budget: int, max_seqs: int) -> None:
    """Run all requests to their end, filling in ``first_ns`` and ``end_ns``."""
    arriving, waiting, running = deque(requests), deque[Request](), list[Request]()
    now = 0
    while arriving or waiting or running:
        while arriving and arriving[0].arrival_ns <= now:
            waiting.append(arriving.popleft())
        step = _schedule(waiting, running, pool, budget, max_seqs)
        if not step:
            now = max(now, arriving[0].arrival_ns)
            continue
        decodes = [r for r, _ in step if r.computed >= r.target]
        kv = [r.computed for r in decodes]
        chunks = tuple((new, r.computed) for r, new in step if r not in decodes)
        now += table.step(StepBatch(chunks, len(kv), sum(kv), max(kv, default=0)))
        for request, new in step:
            request.computed += new
            if request.computed < request.tokens:
                continue
            request.generated += 1
            request.first_ns = now if request.first_ns < 0 else request.first_ns
            if request.generated == request.output:
                request.end_ns = now
                pool.release(request.blocks)
                running.remove(request)


def simulate_async(
    requests: list[Request],
    table: StepTimeTable,
    pool: Pool,
    limits: tuple[int, int],
    stop_token: bool,
    host_ns: int = 0,
) -> None:
    """Run all requests; ``limits``: token budget and sequences; no step is shorter than ``host_ns``."""
    arriving, waiting, running = deque(requests), deque[Request](), list[Request]()
    now, flying = 0, None
    while arriving or waiting or running or flying:
        while arriving and arriving[0].arrival_ns <= now:
            waiting.append(arriving.popleft())
        step = _schedule(waiting, running, pool, *limits, foreseen=not stop_token)
        decodes = [r for r, _ in step if r.computed >= r.target]
        kv = [r.computed for r in decodes]
        chunks = tuple((new, r.computed) for r, new in step if r not in decodes)
        length = max(table.step(StepBatch(chunks, len(kv), sum(kv), max(kv, default=0))), host_ns)
        bringing = [r for r, new in step if new == r.to_compute]
        for request, new in step:
            request.computed += new
        for request in bringing:
            request.coming += 1
        if flying is None and not step:
            now = max(now, arriving[0].arrival_ns)
            continue
        if flying is not None:
            now = flying[0]
            _take_tokens(flying[1], now, pool, running, waiting)
        flying = (now + length, bringing) if step else None


def _take_tokens(
    bringing: list[Request], now: int, pool: Pool, running: list[Request], waiting: deque[Request]
) -> None:
    for request in bringing:
        if request.end_ns >= 0:
            continue
        request.coming -= 1
        request.generated += 1
        request.first_ns = now if request.first_ns < 0 else request.first_ns
        if request.generated == request.output:
            request.end_ns = now
            pool.release(request.blocks)
            (running if request in running else waiting).remove(request)


def _schedule(
    waiting: deque[Request],
    running: list[Request],
    pool: Pool,
    budget: int,
    max_seqs: int,
    foreseen: bool = False,
) -> list[tuple[Request, int]]:
    step: list[tuple[Request, int]] = []
    preempted = False
    index = 0
    while index < len(running) and budget:
        request = running[index]
        if foreseen and request.coming and request.tokens + 1 == request.prompt + request.output:
            index += 1
            continue
        new = min(request.to_compute, budget)
        while not pool.grow(request, new):
            last = running.pop()
            preempted = True
            pool.release(last.blocks)
            last.blocks, last.computed, last.keyed = [], 0, 0
            waiting.appendleft(last)
            if last is request:
                return step
        step.append((request, new))
        budget -= new
        index += 1
    while waiting and budget and len(running) < max_seqs and not preempted:
        request = waiting[0]
        hits = pool.hits(request)
        reused = sum(pool.holders[block] == 0 for block in hits)
        if -(-request.tokens // BLOCK) - len(hits) + reused > len(pool.free):
            break
        waiting.popleft()
        pool.hold(hits)
        request.blocks, request.computed, request.keyed = list(hits), len(hits) * BLOCK, len(hits)
        new = min(request.tokens - request.computed, budget)
        pool.grow(request, new)
        request.target = request.tokens
        running.append(request)
        step.append((request, new))
        budget -= new
    return step
