"""A stand-in for the worker of vLLM's OffloadingConnector: copies that take a channel's time."""

from __future__ import annotations

from typing import Any, NamedTuple


class Copies(NamedTuple):
    """Nanoseconds of a block on a channel, and from the last block's end to its arrival."""

    block_ns: int
    latency_ns: int


class Channel:
    """One direction's copies, first come, first served."""

    def __init__(self, copies: Copies) -> None:
        self.copies, self.free_at = copies, 0

    def send(self, blocks: int, now: int) -> int:
        """Return the time at which a job that is submitted now has arrived."""
        self.free_at = max(self.free_at, now) + blocks * self.copies.block_ns
        return self.free_at + self.copies.latency_ns


class Worker:
    """The connector's worker: its jobs in flight, and stores that it has not submitted."""

    def __init__(self, copies: Copies) -> None:
        self.down, self.up = Channel(copies), Channel(copies)
        self.unsubmitted, self.ends = list[tuple[int, int]](), dict[int, int]()
        self.loads = dict[int, str]()
        self.stored_blocks = self.loaded_blocks = 0

    def begin(self, meta: Any, now: int) -> int:
        """Submit what a step begins with; return when its flushed jobs have ended."""
        flushed = sorted(meta.jobs_to_flush or ())
        for job in flushed:
            entry = meta.store_jobs.pop(job, None)
            if entry is not None:
                self.unsubmitted.append((job, len(entry.src_spec.block_ids)))
        for job, blocks in self.unsubmitted:
            self.stored_blocks += blocks
            self.ends[job] = self.down.send(blocks, now)
        self.unsubmitted.clear()
        begun = max([now, *(self.ends[job] for job in flushed if job in self.ends)])
        for job, entry in meta.load_jobs.items():
            blocks = len(entry.dst_spec.block_ids)
            self.loaded_blocks += blocks
            self.loads[job] = entry.req_id
            self.ends[job] = self.up.send(blocks, begun)
        return begun

    def end(self, meta: Any) -> None:
        """Keep a step's stores for the next one."""
        self.unsubmitted += [(job, len(entry.src_spec.block_ids)) for job, entry in meta.store_jobs.items()]

    def ended(self, now: int) -> tuple[dict[int, int], set[str]]:
        """Return the jobs that have ended, and the requests whose load has."""
        done = sorted(
            (job for job, end in self.ends.items() if end <= now), key=lambda job: (self.ends[job], job)
        )
        for job in done:
            del self.ends[job]
        return dict.fromkeys(done, 1), {self.loads.pop(job) for job in done if job in self.loads}
