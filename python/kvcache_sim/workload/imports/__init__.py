"""Logs of production to traces: ``kvsim trace import``.

- ``source``     a log's lines and JSON values, each with its line, and its dates
- ``naming``     a request as it was logged; texts and tokens to lengths and salted block ids
- ``kind``       what a kind of log is
- ``messages``   bodies as OpenAI's clients send them
- ``write``      every kind of log, and its lines as a trace
- ``write``      the trace
- ``aiperf``     AIPerf's ``profile_export.jsonl``: a line a request with its times and lengths
- ``dynamo``     Dynamo's request trace (``dynamo.request.trace.v1``)
- ``kv_batch``   batches of KV events as engines publish them, decoded
- ``kv_events``  a capture of KV events as requests
- ``kv_lookups`` what an engine looked up and found, as its KV events let see it
- ``openai_log`` request logs of OpenAI's interface
- ``prometheus`` scrapes of vLLM's ``/metrics`` as a load curve: each interval's rate and mean lengths
- ``sglang_log`` SGLang's request log, ``--log-requests``, as text or JSON
- ``vllm_log``   vLLM's own log with ``--enable-log-requests``

No text of a log reaches the trace.
"""
