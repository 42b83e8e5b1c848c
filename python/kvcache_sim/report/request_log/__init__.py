"""Real per-request logs, one file a format.

- ``record``       one real request, and how it is paired with a simulated one
- ``aiperf``       AIPerf ``profile_export.jsonl``
- ``vllm``         ``vllm bench serve --save-detailed``
- ``guidellm``     GuideLLM's JSON report
- ``sglang``       SGLang ``--log-requests-format json``
- ``serving_sim``  LLMServingSim's CSV
- ``read``         a file of any of them
- ``timed``        a log as times and lengths, where it has all that a fit of step times needs
"""
