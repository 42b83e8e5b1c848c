"""A replica: one engine instance on a machine, continuous batching as vLLM v1 schedules it (semantics 5).

| file | idea |
|---|---|
| ``replica`` | the event loop: arrivals, boundaries, preemption |
| ``entrance`` | from the queue into the step: admission, loading, joining |
| ``next_step`` | a composed step until it starts: waits for room and for KV, stalls |
| ``keeping`` | what of a finished request stays in the cache |
| ``handing_over`` | what it asks of hand-overs, where answers are decoded elsewhere |
| ``milestones`` | what a request's milestones change: its times, the machine's load, the records |
"""

from kvcache_sim.serving.replica.replica import Replica

__all__ = ["Replica"]
