"""A replica: one engine instance on a machine, continuous batching as vLLM v1 schedules it (semantics 5).

| file | contents |
|---|---|
| ``native`` | a replica whose requests are served in the core |
| ``native_rules`` | the rules of a replica, in the core's format |
| ``contract`` | the interface of a replica for measurements, of the core or of the specification |
"""
