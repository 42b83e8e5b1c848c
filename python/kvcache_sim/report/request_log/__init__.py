"""Real per-request logs.

- ``record``   one real request, and how it is paired with a simulated one
- ``formats``  AIPerf's ``profile_export.jsonl``, ``vllm bench serve --save-detailed``, GuideLLM, SGLang and LLMServingSim
- ``read``     a file of any of them
- ``timed``    a log as times and lengths, where it has all that a fit of step times needs
"""
