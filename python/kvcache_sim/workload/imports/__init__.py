"""Production logs to traces: ``kvsim trace import``.

- ``source``     lines, JSON values and dates of a log
- ``naming``     a logged request; texts and tokens to lengths and salted block ids
- ``kind``       interface of a kind of log
- ``token_counts`` a log's own counts: bytes a token, tokens of images, unexplained tokens
- ``write``      every kind of log, and its lines as a trace
- ``aiperf``     AIPerf's ``profile_export.jsonl``: one line per request with its times and lengths
- ``dynamo``     Dynamo's request trace (``dynamo.request.trace.v1``)
- ``kv_batch``   decoder of KV-event batches as engines publish them
- ``kv_events``  a capture of KV events as requests
- ``kv_lookups`` an engine's lookups and hits, inferred from its KV events
- ``openai_log`` request logs of proxies and gateways: OpenAI, Anthropic, Gemini
- ``prometheus`` scrapes of vLLM's ``/metrics`` as a load curve: each interval's rate and mean lengths
- ``sglang_log`` SGLang's request log, ``--log-requests``, as text or JSON
- ``vllm_log``   vLLM's own log with ``--enable-log-requests``

No text of a log reaches the trace.
"""
