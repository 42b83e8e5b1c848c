"""Rows of an exact cache simulator, by what made them."""

import json

from support.shared_files import shared

OUTPUTS = {"P": "prompt", "PO1": "computed", "PO": "all"}


#: Members of a row about its origin, which no replay can compute.
PROVENANCE = {"version", "commit", "trace"}


def rows_of(family: str) -> list[dict]:
    names = {"vllm": "vllm_kvcachemanager", "sglang": "sglang_radixcache", "vllm-offload": "vllm_cpu_offload"}
    return json.loads(shared(f"oracles/{names[family]}.json").read_text())
