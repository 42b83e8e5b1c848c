"""The same sessions on an engine: a scenario's hits and times on the trace that the logs make."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import format_percent
from kvcache_sim.extras.session.what_if import CONTEXT_EDITS, Edit, context_of
from kvcache_sim.report.plain_table import next_line, plain_sentences
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.scenario.objectives import objectives_of
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from kvcache_sim.workload.context_edits import ContextEdit
from kvcache_sim.workload.imports.kind import Reading
from kvcache_sim.workload.imports.naming import Naming, Notes
from kvcache_sim.workload.imports.write import import_logs, trace_lines
from kvcache_sim.workload.readers import ReadSettings, read_trace
from kvcache_sim.workload.toolbox.edited import edited
from kvcache_sim.workload.toolbox.write import write_lines

#: Tokens of a block of the trace, as ``kvsim trace import`` writes it.
_BLOCK_TOKENS = 16
#: The settings of a scenario for such a trace.
TRACE_SETTINGS: dict[str, Any] = {"trace.block_size": _BLOCK_TOKENS}


class OnEngine(NamedTuple):
    """The summary of a run of the sessions; ``sessions``: the most at a time that the scenario's limits hold.

    ``flag`` is the edit of the context, "" for none; ``sessions`` None: not searched, 0: not even one.
    """

    flag: str
    summary: dict[str, Any]
    sessions: int | None
    warnings: tuple[str, ...]


def on_engine(
    paths: Sequence[str], config: Path, edits: Sequence[Edit], held: Callable[[Path], int | None]
) -> list[OnEngine]:
    """Simulate the sessions of logs on a scenario, then under each edit of their context.

    Args:
        paths: The logs.
        config: The scenario.
        edits: What-ifs; those that edit no context make no other trace.
        held: Returns the most sessions at a time of a trace within the scenario's limits, None for none.

    Raises:
        UsageError: The logs are a trace; also what ``kvsim trace import``, ``edit`` and ``simulate`` raise.
    """
    found = []
    with _trace_of(paths) as trace:
        for edit in (None, *(each for each in edits if each.name in CONTEXT_EDITS)):
            path = trace if edit is None else _edited(trace, context_of(edit, ContextEdit()))
            scenario = load_scenario(
                config, [f"{name}={value}" for name, value in TRACE_SETTINGS.items()], path
            )
            done = execute(scenario, read_requests(scenario), RunOptions())
            sessions = None if objectives_of(scenario.model) is None else held(path)
            warnings = tuple(each for each in done.warnings if str(path) not in each)
            found.append(OnEngine("" if edit is None else edit.flag, done.summary, sessions, warnings))
    return found


@contextmanager
def _trace_of(paths: Sequence[str]) -> Iterator[Path]:
    """Return the trace that ``kvsim trace import`` writes of logs."""
    found = import_logs(paths, "", Reading(Naming(_BLOCK_TOKENS, b"-"), Notes()))
    if found is None:
        raise UsageError("a trace, no log", where=paths[0], hint="kvsim simulate takes it")
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "sessions.jsonl"
        write_lines(trace, found.lines(), force=False)
        yield trace


def _edited(trace: Path, edit: ContextEdit) -> Path:
    """Return the trace that ``kvsim trace edit`` writes."""
    read = read_trace(
        trace, settings=ReadSettings(block_size=_BLOCK_TOKENS, missing_ids="leave", keep_unknown=True)
    )
    path = trace.with_name("edited.jsonl")
    write_lines(path, trace_lines(edited(read, edit)), force=True)
    return path


def engine_json(found: Sequence[OnEngine]) -> dict[str, Any]:
    """Return hits, times and machines as a document, those of edits by their flags."""
    documents = [
        {
            "token_hit_rate": each.summary["cache"]["token_hit_rate"],
            "hit_tokens": each.summary["cache"]["hit_tokens"],
            "ttft_ms": each.summary["latency"]["ttft"],
            "held_sessions": each.sessions,
        }
        for each in found
    ]
    return {
        **documents[0],
        "what_if": dict(zip([each.flag for each in found[1:]], documents[1:], strict=True)),
    }


def engine_text(found: Sequence[OnEngine], paths: Sequence[str], config: Path, at_once: int) -> str:
    """Return hits, times and machines as sentences; ``at_once``: the most sessions of the logs at a time."""
    lines = []
    for each in found:
        hits, ttft = each.summary["cache"]["token_hit_rate"], each.summary["latency"]["ttft"]
        times = f"TTFT mean {ttft['avg']:,.0f} ms, p50 {ttft['p50']:,.0f} ms, p99 {ttft['p99']:,.0f} ms"
        where = f"on {config}" + (f" with {each.flag}" if each.flag else "")
        lines.append(f"{where}: {format_percent(hits)} of prompt tokens hit; {times}")
        if each.sessions == 0:
            lines.append("not even one session at a time is within its limits in 99 % of the requests")
        elif each.sessions is not None:
            clusters = -(-at_once // each.sessions)
            said = f"within its limits in 99 % of the requests: {each.sessions:,} sessions at a time"
            lines.append(f"{said}; the logs have {at_once:,} at most: {clusters:,} of these clusters")
    if found[0].sessions is not None:
        return plain_sentences(lines)
    sized = next_line("capacity", "sessions.jsonl", "-c", config, "--sessions", "--slo", "ttft=2s")
    imported = next_line("trace", "import", *paths, "-o", "sessions.jsonl")
    return "\n".join([plain_sentences(lines), imported, sized])
