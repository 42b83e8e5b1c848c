"""Readers of the traces the field publishes: one file a format, one sign each in ``signs.py``.

``read_trace`` is the door: it opens a file, finds its format, and returns the columns of ``workload.trace``.
Each name is imported with its first use: a generated workload has no format to find.

- ``agent_rows``         requests of agents as columns: each in its session, after those that it waits for
- ``aiperf_dag``         AIPerf's graphs of conversations
- ``aiperf_multi_turn``  AIPerf's conversations
- ``aiperf_weka``        traces of agents as kv-cache-tester writes and AIPerf replays them
- ``answers_unknown``    prompts of which the answers are not there yet
- ``azure``              Azure LLM inference traces of 2023 and 2024 (Azure/AzurePublicDataset)
- ``bailian``            Qwen-Bailian anonymised usage traces
- ``block``              the tokens of an id, as the first bytes of a file tell them
- ``burstgpt``           BurstGPT (HPMLL): seconds and lengths
- ``chained_text``       text to chained block ids
- ``conversations``      conversations as requests: one an answer, its prompt all that was said before
- ``csv_rows``           rows of CSV: arrivals and lengths, read by the native scanner
- ``dag_schema``         the lines of AIPerf's graphs of conversations, checked
- ``detect``             which format a file is of, from its first bytes
- ``detect_head``        the first bytes of a source that tell what it is
- ``dynamo_agentic``     Dynamo's agentic Mooncake rows
- ``findings``           remarks on a trace that was read: counted, each one line for people
- ``fitting_block``      the block that the ids of a JSON-lines trace fit, told from its first rows
- ``json_stream``        the objects of a JSON array, or of JSON lines, one at a time out of a source
- ``jsonl``              rows of JSON under different member names, read by the native scanner
- ``lmcache``            LMCache agent traces
- ``mooncake``           Mooncake (kvcache-ai, FAST'25): arrivals, lengths and hash ids
- ``openai``             OpenAI chats: ``messages`` of a fine-tuning file
- ``problems``           what is wrong with a trace, told with its place
- ``registry``           every format by name
- ``sharegpt``           ShareGPT conversations: texts, hashed here into chained blocks
- ``signs``              how the files of each format are known
- ``stream``             a trace that is read while it is simulated
- ``vidur``              Vidur (Microsoft): seconds and lengths
- ``weka``               WEKA agentic sessions (kv-cache-tester)
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

    place = "settings" if name == "ReadSettings" else "read"
    return getattr(import_module(f"{__name__}.{place}"), name)
