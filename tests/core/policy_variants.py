"""Every eviction policy of the table as tests name it: a new row is in all of them at once."""

from kvcache_sim.policies.table import EVICTION_POLICIES

#: The policies that mean something by themselves.
NAMES = [row.name for row in EVICTION_POLICIES if row.example == row.name]
#: Settings that matter in traces of a few tokens and nanoseconds.
SMALL = ["ttl:7ns", "pgdsf:9", "priority:0-8=90@3ns,8-16=10,20-=50"]
VARIANTS = [*NAMES, *SMALL]

_TIMED = {"ttl": "ttl:2s", "priority": "priority:0-64=90@1s,64-256=10"}
#: All but the order that stores keep by themselves, with settings that matter in timed runs.
TIMED = [_TIMED.get(row.name, row.example) for row in EVICTION_POLICIES if row.name != "lru"]
