"""Real per-request logs.

- ``formats``  a real request; ``vllm bench serve``, SGLang, AIPerf, GuideLLM, LLMServingSim
- ``read``     a file of any of them
- ``timed``    a log as times and lengths, where it has all that a fit of step times needs
"""
