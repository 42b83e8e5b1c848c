"""Settings that hand-overs under vLLM's own scheduler do not have (its NixlConnector, 0.33.0)."""

from __future__ import annotations

from collections.abc import Iterator

#: Settings that have one value there, and why.
_ONLY = {
    "path": ("gpu-direct", "vLLM's decode machine reads from GPU to GPU"),
    "transfer": ("at-end", "vLLM's decode machine reads a prompt once it is computed"),
    "first_token": ("decode", "vLLM's decode machine computes the first token"),
}
#: Bounds of a queue that a computed prompt would meet a second time.
QUEUE_BOUNDS = ("max_num_queued_reqs", "max_num_queued_tokens")
QUEUED_TWICE = "a computed prompt is not turned away: on prefill machines alone"
ONE_SCHEDULER = "vLLM's scheduler hands prompts over to vLLM's scheduler alone"
NO_STAGES = "micro-batches hand nothing over between machines"
GPU_ALONE = "a machine that hands over under vLLM's scheduler has its GPU alone"
IN_ORDER = "reads of prompts under vLLM's scheduler are sent first come, first served, as a whole"


def refused_values(*, path: str, transfer: str, first_token: str) -> Iterator[tuple[str, str]]:
    """Yield the keys of a hand-over whose value vLLM's scheduler does not have, each with the reason."""
    given = {"path": path, "transfer": transfer, "first_token": first_token}
    yield from ((key, why) for key, (only, why) in _ONLY.items() if given[key] != only)
