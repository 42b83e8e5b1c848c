"""Files of AIPerf as they are read: which request waits for which, and what prompts share."""

import json

import numpy as np
from kvcache_sim.workload.readers.read import read_report
from kvcache_sim.workload.readers.settings import ReadSettings
from kvcache_sim.workload.trace import NO_REQUEST

MS, S = 10**6, 10**9
#: One token a byte and one a block, so that ids show what each prompt holds.
PLAIN = ReadSettings()
CHARACTERS = ReadSettings(block_size=1, bytes_per_token=1)


def read(tmp_path, lines, settings=PLAIN):
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_report(path, settings=settings)


def waits(trace):
    """Return the requests that each waits for."""
    found = [[] if one == NO_REQUEST else [one] for one in trace.after.tolist()]
    for request, other in trace.also_after.tolist():
        found[request].append(other)
    return found


def shared(trace, one, other):
    """Return how many leading blocks two prompts share."""
    a, b = (trace.block_ids[trace.id_offsets[k] : trace.id_offsets[k + 1]] for k in (one, other))
    same = a[: len(b)] == b[: len(a)]
    return int(np.argmin(same)) if not same.all() else len(same)
