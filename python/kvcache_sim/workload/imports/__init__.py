"""Production logs to traces: ``kvsim trace import``.

- ``source``     lines, JSON values and dates of a log
- ``naming``     a logged request; texts and tokens to lengths and salted block ids
- ``kind``       interface of a kind of log
- ``messages``   bodies of OpenAI requests and answers
- ``write``      every kind of log, and its lines as a trace
- ``turns``      conversations of logs of counts: prompts rebuilt, each from a part of the one before
- ``records``    the records of a log of JSON, also of arrays and as TraceLab prints them
- ``agent_counts`` TraceLab's rows and Azure's GitHub Copilot sessions
- ``aiperf``     AIPerf's ``profile_export.jsonl``: one line per request with its times and lengths
- ``claude_code`` sessions of Claude Code and their sub-agents
- ``codex``      sessions of Codex
- ``dynamo``     Dynamo's request trace (``dynamo.request.trace.v1``)
- ``kv_batch``   decoder of KV-event batches as engines publish them
- ``kv_events``  a capture of KV events as requests
- ``kv_lookups`` an engine's lookups and hits, inferred from its KV events
- ``openai_log`` request logs of OpenAI's API
- ``prometheus`` scrapes of vLLM's ``/metrics`` as a load curve: each interval's rate and mean lengths
- ``sglang_log`` SGLang's request log, ``--log-requests``, as text or JSON
- ``vllm_log``   vLLM's own log with ``--enable-log-requests``

No text of a log reaches the trace.
"""
