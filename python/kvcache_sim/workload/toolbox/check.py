"""The verdict on a trace: problems that make it unusable, and notes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvcache_sim.workload.readers import Reading
from kvcache_sim.workload.trace import Trace

#: Findings of a reader that make a trace unusable; all others are notes.
UNFIT = {"broken-chain", "id-size", "time-order", "units", "missing-parent"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of ``check``: the first problems in full, and the number of problems by kind."""

    requests: int
    format: str
    problems: tuple[str, ...]
    counts: dict[str, int]
    remarks: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as plain values."""
        return {
            "requests": self.requests,
            "format": self.format,
            "problems": list(self.problems),
            "counts": self.counts,
            "remarks": list(self.remarks),
        }

    def lines(self) -> Iterator[str]:
        """Yield the lines of text: problems, omissions, counts, notes."""
        yield from self.problems
        for kind, count in self.counts.items():
            yield f"{count:>8,} {kind}"
        yield from (f"remark: {line}" for line in self.remarks)

    def summary(self) -> str:
        """Return one line with the number of requests and of problems."""
        found = sum(self.counts.values())
        return (
            f"{self.requests:,} requests of format {self.format}; {found:,} problems"
            if found
            else (f"{self.requests:,} requests of format {self.format}; no problem")
        )


def judge(report: Reading) -> Verdict:
    """Return the verdict on a trace that was read with bad rows skipped."""
    where = report.trace.source
    problems = [str(p) for p in report.problems]
    counts = dict(report.skipped)
    remarks = []
    for finding in report.findings:
        location = f"{where}:{finding.line}" if finding.line else where
        if finding.kind in UNFIT:
            problems.append(f"{location}: {finding.text}")
            counts[finding.kind] = counts.get(finding.kind, 0) + finding.count
        else:
            remarks.append(f"{location}: {finding.text}")
    repeated = duplicate_rows(report.trace)
    if repeated:
        remarks.append(f"{where}: {repeated:,} rows repeat another row of the same time, lengths and blocks")
    return Verdict(len(report.trace), report.format, tuple(problems), counts, tuple(remarks))


def duplicate_rows(trace: Trace) -> int:
    """Return the number of rows with the time, lengths, session, first and last block of an earlier row."""
    if not len(trace.block_ids):
        return 0
    counts = np.diff(trace.id_offsets)
    last = np.where(counts > 0, trace.block_ids[np.maximum(trace.id_offsets[1:] - 1, 0)].astype(np.int64), -1)
    starts = np.minimum(trace.id_offsets[:-1], len(trace.block_ids) - 1)
    first = np.where(counts > 0, trace.block_ids[starts].astype(np.int64), -1)
    lengths = (trace.input_tokens, trace.output_tokens)
    columns = (trace.arrival_ns, trace.think_ns, *lengths, trace.session, first, last)
    order = np.lexsort(columns)
    same = np.logical_and.reduce([c[order[1:]] == c[order[:-1]] for c in columns])
    return int(np.count_nonzero(same))
