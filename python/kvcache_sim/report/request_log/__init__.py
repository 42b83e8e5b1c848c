"""Real per-request logs.

- ``record``   one real request, with the key of its simulated request
- ``formats``  AIPerf, ``vllm bench serve``, GuideLLM, SGLang's ``--log-requests-format json``, LLMServingSim
- ``read``     a file of any of them
- ``timed``    a log as times and lengths, where it has all that a fit of step times needs
"""
