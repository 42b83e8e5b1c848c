"""SGLang's own scheduler (0.5.23), step by step in plain Python: the reference of the core's.

Rules: ``srt/managers/scheduler.py``, ``schedule_policy.py`` and ``schedule_batch.py``; one rank, no
speculation, no LoRA, no priorities. It also serves step-time models that are no table.

| file | idea |
|---|---|
| ``settings`` | what the scheduler is told, of the scenario's replica |
| ``tree`` | what it asks of its cache |
| ``sequence`` | one request between its arrival and its last token |
| ``policy`` | who of the queue is looked at first |
| ``new_token_ratio`` | how much of an answer is reserved at an admission |
| ``state`` | the queue, the running requests, and what both kinds of steps share |
| ``prefill`` | a step of prompts: chunks, admissions, decodes mixed in |
| ``decode`` | a step of decodes, and retraction |
| ``engine`` | the scheduler as a replica asks it (``serving.engine_scheduler``), and its outputs |
"""
