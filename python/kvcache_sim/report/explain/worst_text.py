"""What ``kvsim explain --worst`` prints: the spike in sentences, then the requests that waited longest."""

from __future__ import annotations

import json

from kvcache_sim.report.explain.spike import spike_sentences
from kvcache_sim.report.explain.worst import Window, worst_table
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import Table
from kvcache_sim.report.plain_table import plain_sentences, plain_table


def told(run: FinishedRun, most: int, window: Window | None, output_format: str) -> str:
    """Return the spike and the ``most`` worst requests that arrive in a window, as text or JSON.

    Raises ``UsageError`` where no request arrives in the window.
    """
    sentences = spike_sentences(run, window)
    table = worst_table([run], most, window)
    own = Table(table.headings[1:], tuple(row[1:] for row in table.rows))
    if output_format == "json":
        requests = [dict(zip(own.headings, row, strict=True)) for row in own.rows]
        return json.dumps({"spike": sentences, "worst": requests}, indent=2, ensure_ascii=False)
    return f"{plain_sentences(sentences)}\n\n{plain_table(own)}"
