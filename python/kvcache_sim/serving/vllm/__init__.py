"""vLLM's own scheduler (0.33.0), step by step in plain Python: the reference of ``serving/vllm`` in the core.

Rules: ``vllm/v1/core/sched/scheduler.py`` and ``async_scheduler.py``; no speculation, no connector, chunked
prefill on. It also serves step-time models that are no table.

| file | idea |
|---|---|
| ``settings`` | what the scheduler is told, of the scenario's replica |
| ``sequence`` | one request between its arrival and its last token |
| ``waiting`` | who waits: in order of arrival, or by priority |
| ``blocks`` | the pool that it gives out: of one cache group, or of several |
| ``scheduler`` | what the next step computes: running requests, preemption, admission |
| ``outputs`` | the tokens that a step's end brings |
| ``engine`` | the scheduler as a replica asks it (``serving.engine_scheduler``) |
"""
