"""The same sessions on an engine: a scenario's hits and times on the trace that the logs make."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import format_percent
from kvcache_sim.base.values import Value
from kvcache_sim.report.plain_table import next_line, plain_sentences
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from kvcache_sim.workload.imports.kind import Reading
from kvcache_sim.workload.imports.naming import Naming, Notes
from kvcache_sim.workload.imports.write import import_logs
from kvcache_sim.workload.toolbox.write import write_lines

#: Tokens of a block of the trace, as ``kvsim trace import`` writes it.
_BLOCK_TOKENS = 16


class OnEngine(Value):
    """The summary of a run, and the lines that say how its prompts were made."""

    summary: dict[str, Any]
    said: tuple[str, ...]


def on_engine(paths: Sequence[str], config: Path) -> OnEngine:
    """Simulate the sessions of logs on a scenario; raises as ``kvsim trace import`` and ``simulate``."""
    reading = Reading(Naming(_BLOCK_TOKENS, b"-"), Notes())
    found = import_logs(paths, "", reading)
    if found is None:
        raise UsageError("a trace, no log", where=paths[0], hint="kvsim simulate takes it")
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "sessions.jsonl"
        write_lines(trace, found.lines(), force=False)
        scenario = load_scenario(config, [f"trace.block_size={_BLOCK_TOKENS}"], trace)
        done = execute(scenario, read_requests(scenario), RunOptions())
    return OnEngine(done.summary, tuple(found.said))


def engine_json(found: OnEngine) -> dict[str, Any]:
    """Return hits and times as a document."""
    cache, latency = found.summary["cache"], found.summary["latency"]
    return {
        "token_hit_rate": cache["token_hit_rate"],
        "hit_tokens": cache["hit_tokens"],
        "ttft_ms": latency["ttft"],
    }


def engine_text(found: OnEngine, paths: Sequence[str], config: Path) -> str:
    """Return hits and times as sentences, and the command that sizes the machines."""
    summary = found.summary
    hits, ttft = summary["cache"]["token_hit_rate"], summary["latency"]["ttft"]
    said = f"on {config}: {format_percent(hits)} of prompt tokens hit"
    times = f"TTFT mean {ttft['avg']:,.0f} ms, p50 {ttft['p50']:,.0f} ms, p99 {ttft['p99']:,.0f} ms"
    sized = next_line("capacity", "sessions.jsonl", "-c", config, "--sessions", "--slo", "ttft=2s")
    imported = next_line("trace", "import", *paths, "-o", "sessions.jsonl")
    return "\n".join([plain_sentences([said, times]), imported, sized])
