"""Readers of the traces the field publishes: a file a kind of format, each with its sign in ``format.py``.

``read_trace`` is the door: it opens a file, finds its format, and returns the columns of ``workload.trace``.
Each name is imported with its first use: a generated workload has no format to find.

- ``agent_rows``         requests of agents as columns: each in its session, after those that it waits for
- ``aiperf_dag``         AIPerf's graphs of conversations
- ``aiperf_multi_turn``  AIPerf's conversations
- ``aiperf_weka``        traces of agents as kv-cache-tester writes and AIPerf replays them
- ``answers_unknown``    prompts of which the answers are not there yet
- ``block``              the tokens of an id, as the first bytes of a file tell them
- ``chained_text``       text to chained block ids
- ``conversations``      conversations as requests, one an answer: ShareGPT, OpenAI chats
- ``csv_rows``           rows of CSV: Azure, BurstGPT, Vidur
- ``dag_schema``         the lines of AIPerf's graphs of conversations, checked
- ``dynamo_agentic``     Dynamo's agentic Mooncake rows
- ``findings``           remarks on a trace that was read: counted, each one line for people
- ``json_rows``          rows of JSON, read by the native scanner: Mooncake, Bailian, LMCache, WEKA
- ``json_stream``        the objects of a JSON array, or of JSON lines, one at a time out of a source
- ``problems``           what is wrong with a trace, told with its place
- ``registry``           every format by name
- ``stream``             a trace that is read while it is simulated
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
