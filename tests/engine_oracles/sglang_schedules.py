"""SGLang's own Scheduler over HiCache, step by step under a virtual clock, against ``replica.scheduler: sglang``.

Each stream draws requests, pools, a write policy, the time of copies and the scheduler's settings; start, tokens and
queue of every step, every admission, first and last tokens must be equal. Run as a program, since its stand-ins are
others than those of ``sglang_tree``: FOLDER STREAMS FIRST.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from kvcache_sim.base.errors import StoreError
from kvcache_sim.cache.settings import CacheSettings, StoragePrefetch, TierSettings
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.model.releases import parse_release
from kvcache_sim.model.step_times import load_step_time
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings, ReplicaSettings, SglangRelease
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.simulation import Simulation

from engine_oracles import sglang_scheduler, stubs
from engine_oracles.streams import compare_streams, lines_digest, stream
from engine_oracles.stubs import Fields, Real, Record
from engine_oracles.vllm_schedules import BASE_NS, CLOCK, CONTEXT_NS, DECODE_NS, TOKEN_NS, difference

#: Passes without a batch after which nothing changes before the next event.
IDLE_PASSES = 3
MOST_PASSES = 60_000
#: SGLang's write policies, by their names here.
WRITES = {"through": "write_through", "selective": "write_through_selective", "back": "write_back"}
#: SGLang's stop policies, by their names here.
STOPS = {"wait": "wait_complete", "timeout": "timeout", "best-effort": "best_effort"}
_TOKEN_BYTES = 10_000


class Asked:
    """A stream's requests and settings."""

    #: A storage below the host.
    storage: Stored | None = None
    #: Prefixes are kept.
    enabled = True

    def __init__(self, seed: int, wheel: str = "sglang==0.5.23") -> None:
        draw = random.Random(seed)
        trace = stream(draw)
        gap = draw.choice([0, 5, 30, 100])
        arrivals = np.cumsum([draw.randint(0, gap) for _ in range(len(trace))]) * 10**6
        answers = trace.output_tokens * draw.choice([1, 2, 4])
        trace = self.trace = replace(trace, arrival_ns=arrivals, output_tokens=answers)
        self.page = draw.choice([1, 4, 16])
        longest = int((trace.input_tokens + trace.output_tokens).max())
        pages = (longest + 3 * self.page + draw.randint(0, longest)) // self.page + 1
        self.pages = pages
        self.write = draw.choice(list(WRITES))
        self.host_pages = max(1, int(pages * draw.choice([0.1, 0.3, 0.6, 1, 2, 4])))
        #: Nanoseconds that a token takes to be copied; 0: copies end at once.
        self.token_ns = draw.choice([0, 0, 10_000, 100_000])
        self.strategy = draw.choice(["lru", "lru", "lfu", "fifo", "slru"])
        self.settings = ReplicaSettings(
            scheduler="sglang",
            max_num_batched_tokens=draw.choice([64, 150, 512, 2048]),
            max_num_seqs=draw.choice([2, 4, 8, 40]),
            max_prefill_tokens=draw.choice([100, 16384]),
            schedule_policy=draw.choice(["fcfs", "lpm", "dfs-weight", "lof"]),
            enable_mixed_chunk=draw.random() < 0.3,
            schedule_conservativeness=draw.choice([0.02, 0.1, 0.3, 1.0]),
            async_scheduling=draw.choice(["none", "length"]),
            sglang_release=SglangRelease.of(parse_release(wheel.replace("==", "@"))),
        )

    @property
    def write_policy(self) -> str:
        return WRITES[self.write]

    def __str__(self) -> str:
        own = {name: value for name, value in vars(self).items() if name not in ("trace", "settings")}
        return f"{own} {self.settings}"


@dataclass(frozen=True)
class Stored:
    """A storage: its pages, their times to be written and read, and the rules of prefetches."""

    pages: int | None
    page_ns: tuple[int, int]
    threshold: int
    stop: str
    #: Seconds.
    timeout: Fraction
    timeout_per_ki_token: Fraction


class Stream:
    """Work on a device in order: the time at which all of it is done."""

    def __init__(self) -> None:
        self.done = 0

    def wait_stream(self, other: Stream) -> None:
        self.done = max(self.done, other.done)


class Copies:
    """The engine of copies between device and host, with a stream for each direction."""

    def __init__(self, engine: Engine, token_ns: int) -> None:
        self.engine, self.token_ns = engine, token_ns
        self.device_to_host_stream, self.host_to_device_stream = Stream(), Stream()

    def _submit(self, stream: Stream, tokens: int) -> Any:
        stream.done = max(stream.done, self.engine.now) + tokens * self.token_ns
        done, engine = stream.done, self.engine
        event = Fields(query=lambda: done <= engine.now, synchronize=lambda: engine.wait(done), done=done)
        return Fields(start_event=None, finish_event=event, timing_enabled=False)

    def submit_device_to_host(self, transfers: list[Any]) -> Any:
        return self._submit(self.device_to_host_stream, transfers[0])

    def submit_host_to_device(self, transfers: list[Any], **_: Any) -> Any:
        return self._submit(self.host_to_device_stream, transfers[0])


class Engine:
    """The scheduler of a wheel with requests of a trace, and a record of its actions."""

    def __init__(self, real: Real, asked: Asked) -> None:
        self.real, self.asked, self.trace = real, asked, asked.trace
        self.now, self.next, self.passes, self.entries, self.idle, self.was_clear = 0, 0, 0, 0, 0, False
        self.forward, self.counts, self.stops = Stream(), Counter[str](), False
        self.steps, self.admissions = list[tuple[int, ...]](), list[tuple[int, ...]]()
        self.first, self.last = dict[int, int](), dict[int, int]()
        self.cached, self.reqs = dict[int, int](), dict[int, Any]()
        sglang_scheduler.configure(real, self)
        self.copies, self.continues, self.threads = Copies(self, asked.token_ns), None, None
        self.scheduler = sglang_scheduler.scheduler(self)

    # -- the world around the scheduler

    def wait(self, until: int) -> None:
        """Let the scheduler's thread wait."""
        self.now = max(self.now, until)

    def ingest(self) -> None:
        """Bring the requests that have come; with nothing to do, wait for the next event."""
        scheduler, acks = self.scheduler, self.controller
        self.passes += 1
        assert self.passes < MOST_PASSES, "the scheduler does not end"
        self.idle = self.idle + 1 if scheduler.last_batch is None and self.was_clear else 0
        self.was_clear = not scheduler.result_queue
        if self.idle >= IDLE_PASSES and (self.threads is None or self.threads.is_settled()):
            self.idle = 0
            coming = [int(at) for at in self.trace.arrival_ns[self.next : self.next + 1]]
            queues = (*acks.ack_write_queue, *acks.ack_load_queue)
            coming += [ack.finish_event.done for ack in queues if ack.finish_event.done > self.now]
            if self.threads is not None:
                coming += self.threads.coming()
            if not coming:
                assert not scheduler.waiting_queue, "a request waits for ever"
                scheduler.gracefully_exit = True
                return
            self.wait(min(coming))
        while self.next < len(self.trace) and self.trace.arrival_ns[self.next] <= self.now:
            req = sglang_scheduler.request(self, self.next)
            self.reqs[self.next] = req
            scheduler._add_request_to_queue(req)
            self.next += 1

    def run_batch(self, batch: Any) -> Any:
        """Launch a step: the model is a clock."""
        scheduler = self.scheduler
        loads = self.copies.host_to_device_stream.done if batch.hicache_consumer_index >= 0 else 0
        begin = max(self.now, self.forward.done)
        decodes = batch.reqs if batch.forward_mode.is_decode() else batch.decoding_reqs or []
        prompts = [] if batch.forward_mode.is_decode() else batch.reqs[: len(batch.reqs) - len(decodes)]
        tokens = sum(req.extend_end - req.prefix_len for req in prompts)
        context = sum(req.kv.kv_committed_len for req in decodes)
        took = BASE_NS + TOKEN_NS * (tokens + len(decodes)) + DECODE_NS * len(decodes) + CONTEXT_NS * context
        self.forward.done = max(begin, loads) + took
        held = sum(req.kv.holds_kv for req in self.reqs.values())
        self.steps.append((begin, tokens, len(decodes), held, len(scheduler.waiting_queue)))
        if prompts:
            self.admitted(prompts)
        done = self.forward.done
        ids = stubs.tensor([-1] * len(batch.reqs))
        return Record(
            copy_done=Fields(synchronize=lambda: self.wait(done)),
            next_token_ids=[0] * len(ids) if batch.forward_mode.is_decode() else ids,
            get_num_generated_tokens=int,
            batch=list(batch.reqs),
        )

    def admitted(self, prompts: list[Any]) -> None:
        for req in prompts:
            if req is self.continues:
                continue
            number = int(req.rid)
            self.admissions.append((len(self.steps) - 1, number, req.prefix_len))
            self.cached.setdefault(number, req.prefix_len)
            self.counts["loads"] += req.host_loaded_length > 0 and req.host_hit_length > 0
            self.counts["refused loads"] += req.host_hit_length > 0 and req.host_loaded_length == 0
        self.continues = self.scheduler.chunked_req

    def results(self, batch: Any, result: Any) -> None:
        """Process the tokens of a step that has ended."""
        own = self.scheduler.batch_result_processor
        before = {req.rid: len(req.output_ids) for req in batch.reqs}
        if batch.forward_mode.is_decode():
            own.process_batch_result_decode(batch, result)
        else:
            own.process_batch_result_prefill(batch, result)
        self.cache.flush_pending_backups()
        for req in batch.reqs:
            if len(req.output_ids) > before[req.rid]:
                self.first.setdefault(int(req.rid), self.now)
                if req.finished():
                    self.last.setdefault(int(req.rid), self.now)

    def run(self) -> None:
        """Serve all requests in the engine's own loop."""
        scheduler = self.scheduler
        try:
            if self.asked.settings.async_scheduling == "none":
                scheduler.event_loop_normal()
            else:
                scheduler.event_loop_overlap()
        except RuntimeError as error:
            self.stops = "Out of memory" in str(error) or "out of memory" in str(error)
            self.counts["out of memory"] += 1
            if not self.stops:
                raise
        if self.threads is not None:
            self.threads.count()
            self.threads.stop()

    def figures(self) -> dict[str, Any]:
        """Return what ``replica.schedule()`` says."""
        retractions = {number: req.retraction_count for number, req in self.reqs.items()}
        self.counts["retractions"] = sum(retractions.values())
        return {
            "stops": self.stops,
            "admissions": self.admissions,
            "steps": self.steps,
            "requests": [
                (r, self.first[r], self.last[r], self.cached[r], retractions[r]) for r in sorted(self.last)
            ],
        }


def ours(asked: Asked) -> dict[str, Any]:
    """Return the same of this project's scheduler."""
    is_slow, stored = asked.token_ns > 0, asked.storage
    names = {stop: name for name, stop in STOPS.items()}
    prefetch = stored and StoragePrefetch(
        names[stored.stop],
        int(stored.timeout * 10**9),
        int(stored.timeout_per_ki_token * 10**9),
        stored.threshold,
    )
    host = {"lower_semantics": "hicache", "lower_write": asked.write, "lower_prefetch": prefetch}
    cache = CacheSettings(
        enabled=asked.enabled,
        block_size_tokens=asked.page,
        semantics="sglang",
        policy=asked.strategy,
        **(host if asked.host_pages else {}),
        kv_bytes_per_token=_TOKEN_BYTES if is_slow else 0,
        num_layers=1,
    )
    tiers, token_ns = [TierSettings("gpu", asked.pages, asked.strategy)], dict[str, int]()
    if asked.host_pages:
        token_ns = dict.fromkeys(("gpu->cpu", "cpu->gpu"), asked.token_ns)
        tiers.append(TierSettings("cpu", asked.host_pages, asked.strategy))
    if stored:
        token_ns |= zip(("cpu->disk", "disk->cpu"), (ns // asked.page for ns in stored.page_ns), strict=True)
        tiers.append(TierSettings("disk", stored.pages))
    edges = {edge: edge for edge in token_ns}
    machine = MachineSettings(tuple(tiers), load_step_time(CLOCK), asked.settings, edges)
    channels = {
        edge: ChannelSettings(edge, 10**9 * _TOKEN_BYTES // max(ns, 1)) for edge, ns in token_ns.items()
    }
    settings = ClusterSettings((machine,), channels, cache)
    simulation = Simulation(settings, asked.trace, RunOptions(schedule=True))
    stops = False
    try:
        simulation.run()
    except StoreError as error:
        stops = error.what.startswith("out of memory")
        if not stops:
            raise
    replica: Any = simulation.replicas[0]
    log = replica.schedule()
    admissions = [each for each in log.admissions if each[0] < len(log.steps)]
    return {"admissions": admissions, "steps": log.steps, "requests": sorted(log.requests), "stops": stops}


def digests(figures: dict[str, Any]) -> dict[str, Any]:
    """Return figures as a row keeps them: digests, and how many requests were retracted."""
    lists = {name: values for name, values in figures.items() if name != "stops"}
    kept: dict[str, Any] = {f"{name}_sha256": lines_digest(values) for name, values in lists.items()}
    return kept | {"retracted": sum(request[-1] > 0 for request in figures["requests"])}


#: How often what happened in the streams so far.
SEEN = Counter[str]()


def differs(real: Real, asked: Asked) -> str | None:
    """Return how a stream differs, None where it is equal."""
    engine = Engine(real, asked)
    try:
        engine.run()
    except sglang_scheduler.Aborted:
        # here the request goes to the queue (docs/understand/sglang.md)
        SEEN["aborts, not compared"] += 1
        return None
    theirs = engine.figures()
    SEEN.update({name: int(count > 0) for name, count in engine.counts.items()})
    return difference(theirs, ours(asked), str(asked))


def program(title: str, asked_of: Callable[[int, str], Asked]) -> int:
    """Compare the streams of a command line's seeds, print what happened in them; return the exit code."""
    wheel = Path(sys.argv[1]).name
    code = compare_streams(
        title, sglang_scheduler.load, lambda real, seed: differs(real, asked_of(seed, wheel)), *sys.argv[1:4]
    )
    print("streams with " + ", ".join(f"{name}: {count}" for name, count in sorted(SEEN.items())))
    return code


if __name__ == "__main__":
    sys.exit(program("SGLang schedules", Asked))
