"""Real per-request logs.

- ``formats``  a real request; ``vllm bench serve``, SGLang, AIPerf, GuideLLM, LLMServingSim
- ``read``     a file of any of them
"""
