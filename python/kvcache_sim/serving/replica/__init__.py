"""A replica: one engine instance on a machine, continuous batching as vLLM v1 schedules it (semantics 5).

| file | idea |
|---|---|
| ``replica`` | the event loop: arrivals, boundaries, what changes between them |
| ``scheduler`` | who is in the next step: preemption, admission, loading, joining |
| ``next_step`` | a composed step until it starts: waits for room and for KV, stalls |
| ``handing_over`` | what it asks of hand-overs, where answers are decoded elsewhere |
| ``in_python`` | puts one of these together with its batch, scheduler and milestones |
| ``native`` | a replica whose requests go their whole way in the native core |
| ``contract`` | what others ask of a replica, native or in Python |
| ``milestones`` | what a request's milestones change: its times, the machine's load, the records |
| ``arrival_path`` | from a request's arrival at a machine to its queue |
| ``copy_cost`` | what copies to and from the GPU cost the steps |
| ``native_rules`` | what the core is told of a replica, and what it knows how to do |
| ``plugin_rules`` | the plug-ins of a replica that the core calls |
| ``observation`` | how a replica is run and watched |
"""
