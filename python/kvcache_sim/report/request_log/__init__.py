"""Real per-request logs.

- ``record``   one real request, with the key of its simulated request
- ``formats``  ``vllm bench serve``, SGLang's ``bench_serving`` and requests, AIPerf, GuideLLM, LLMServingSim
- ``read``     a file of any of them
- ``timed``    a log as times and lengths, where it has all that a fit of step times needs
"""
