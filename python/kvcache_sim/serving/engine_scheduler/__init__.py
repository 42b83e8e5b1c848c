"""A replica that an engine's own scheduler serves, one step at a time.

| file | idea |
|---|---|
| ``contract`` | what such a scheduler is |
| ``replica`` | steps one after another, or one decided ahead |
| ``schedule_log`` | the schedule, written down |
| ``pipeline`` | a replica whose model is split into pipeline stages, with as many micro-batches in flight |
"""
