"""Names of traces and workloads for tests of several folders."""
# ruff: noqa: F401

from kvcache_sim.workload.block_names import BlockTokens
from kvcache_sim.workload.generate.build import build, settings_of
from kvcache_sim.workload.generate.jsonl import write_jsonl
from kvcache_sim.workload.imports.naming import salted_ids, salted_names
from kvcache_sim.workload.rows import select_rows
from kvcache_sim.workload.sessions import continuations, previous_turns
from kvcache_sim.workload.tokens.sequences import token_batches
from kvcache_sim.workload.toolbox.transforms import merge, parse_speed
from kvcache_sim.workload.upper_bound import upper_bound_hit_tokens
