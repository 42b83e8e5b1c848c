"""Production logs to traces: ``kvsim trace import``.

- ``source``     lines, JSON values and dates of a log
- ``naming``     a logged request; texts and tokens to lengths and salted block ids
- ``kind``       interface of a kind of log
- ``write``      every kind of log, and its lines as a trace
- ``documents``  the values of a log in JSON: lines, an array, whole documents, pages, TraceLab's records
- ``calls``      calls of models as formats of JSON log them: one reader for all of the next
- ``chains``     prompts of Responses that continue an earlier answer
- ``gateways``   LiteLLM, Langfuse, and the output of OpenAI's batches
- ``spans``      OpenTelemetry's ``gen_ai`` spans
- ``client_logs`` genai-perf's and inference-perf's requests with their payloads
- ``openai_log`` request logs of proxies and gateways: bodies of OpenAI, Anthropic and Gemini
- ``token_counts`` a log's own token counts, held against its texts
- ``bench``      results of ``vllm bench serve``, SGLang's ``bench_serving`` and guidellm
- ``cache_lines`` log lines that count cached tokens: LMCache's look-ups, SGLang's prefill batches
- ``turns``      conversations of logs of counts: prompts rebuilt, each from a part of the one before
- ``agent_counts`` TraceLab's rows and Azure's GitHub Copilot sessions
- ``aiperf``     AIPerf's ``profile_export.jsonl``: one line per request with its times and lengths
- ``claude_code`` sessions of Claude Code and their sub-agents
- ``codex``      sessions of Codex
- ``dynamo``     Dynamo's request trace (``dynamo.request.trace.v1``)
- ``known_formats`` formats that are known and not read, each with its signs
- ``recognize``  a log where a trace should be: what it has, and the command
- ``kv_batch``   decoder of KV-event batches as engines publish them
- ``kv_events``  KV events as requests: captures, engines' batches, Dynamo's router events
- ``kv_lookups`` an engine's lookups and hits, inferred from its KV events
- ``lmcache_lookups`` LMCache's log of look-up hashes
- ``prometheus`` scrapes of an engine's ``/metrics`` as a load curve: each interval's rate and mean lengths
- ``sglang_log`` SGLang's request log, ``--log-requests``, as text or JSON
- ``vllm_log``   vLLM's own log with ``--enable-log-requests``

No text of a log reaches the trace.
"""
