"""A replica: one engine instance on a machine, continuous batching as vLLM v1 schedules it (semantics 5).

| file | idea |
|---|---|
| ``native`` | a replica whose requests are served in the core |
| ``native_rules`` | the rules of a replica, as the core takes them |
| ``contract`` | what measurements read of a replica, of the core or of the specification |
"""
