"""Readers of published trace formats: one file per kind of format, with detection rules in ``format.py``.

``read_trace`` is the entry point: it opens a file, detects its format, and returns the columns of
``workload.trace``. Each name is imported at its first use: a generated workload needs no format.

- ``agent_rows``         requests of agents as columns: each in its session, after the requests that it awaits
- ``aiperf_dag``         AIPerf's graphs of conversations
- ``aiperf_multi_turn``  AIPerf's conversations
- ``aiperf_weka``        traces of agents as kv-cache-tester writes and AIPerf replays them
- ``answers_unknown``    placeholder tokens for answers that the file lacks
- ``chained_text``       text to chained block ids
- ``conversations``      conversations as requests, one per answer: ShareGPT, OpenAI chats
- ``dates``              dates in files as ns since 1970
- ``csv_rows``           rows of CSV: Azure, BurstGPT, Vidur
- ``dag_schema``         validation of the lines of AIPerf's graphs of conversations
- ``dynamo_agentic``     Dynamo's agentic Mooncake rows
- ``findings``           counted notes on a trace, one line each
- ``json_rows``          rows of JSON, read by the native scanner: Mooncake, Bailian, LMCache, WEKA
- ``json_stream``        the objects of a JSON array, or of JSON lines, one at a time
- ``mooncake_texts``     Mooncake's rows whose prompts are texts
- ``parquet``            rows of Parquet with Mooncake's columns
- ``problems``           errors of a trace with their location
- ``stream``             a trace that is read while it is simulated
- ``turns``              later rows of sessions: whole prompts, or their new turn alone
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvcache_sim.workload.readers.read import Reading, open_trace, read_report, read_trace
    from kvcache_sim.workload.readers.settings import ReadSettings

__all__ = ["ReadSettings", "Reading", "open_trace", "read_report", "read_trace"]


def __getattr__(name: str) -> object:
    """Import a name of ``__all__``."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    position = "settings" if name == "ReadSettings" else "read"
    return getattr(import_module(f"{__name__}.{position}"), name)
