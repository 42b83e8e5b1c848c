"""Requests of an engine replay in the form that the core takes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim import _core
from kvcache_sim.errors import UsageError
from kvcache_sim.replay.block_keys import BlockKeys
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.workload.key_arrays import NO_NEXT_TURN
from kvcache_sim.workload.sessions import continuations

#: No next turn, for the core.


def refuse_without_effect(
    request: ReplayRequest,
    policy: str,
    window: bool = False,
    outputs: bool = False,
    store_threshold: bool = False,
    any_block: bool = False,
    host: bool = False,
    disk: bool = False,
    cpu: bool = False,
) -> None:
    """Raise UsageError for a setting that this manager fixes itself, or that does not fit the trace."""
    trace_block = request.trace.block_size
    if not any_block and (request.block_size_tokens < 1 or trace_block % request.block_size_tokens):
        raise UsageError(
            "block size does not divide the trace's",
            where="--block-size",
            got=str(request.block_size_tokens),
            expected=f"a divisor of {trace_block}",
        )
    if not 1 <= request.capacity_blocks < 2**31:
        raise UsageError(
            "capacity out of range",
            where="--capacity",
            got=f"{request.capacity_blocks} blocks",
            expected="1 to 2³¹ − 1 blocks",
        )
    useless = {
        "--order": request.touch_from != "tail",
        "--last-partial": request.last_partial != "drop",
        "--flat": request.discipline == "flat",
        "--window": request.window != 0 and not window,
        "--outputs": request.outputs != "prompt" and not outputs,
        "--reuse-outputs": request.reuse_outputs and (not outputs or request.outputs == "prompt"),
        "--store-threshold": request.store_threshold != 0 and not store_threshold,
        "--host-capacity": request.host_blocks != 0 and not host,
        "--write-policy": request.write_policy != "" and not host,
        "--storage": request.storage is not None and not host,
        "--disk-chunks": request.disk_blocks != 0 and not disk,
        "--cpu-chunks": request.cpu_blocks != 0 and not cpu,
        "--secondary-tier": request.secondary and not cpu,
    }
    for option, given in useless.items():
        if given:
            raise UsageError(f"has no effect with --policy {policy}", where=option)


def total_tokens(request: ReplayRequest) -> NDArray[np.int64]:
    """Return the tokens that each request has filled at its end, at least its prompt."""
    n, output = request.trace.input_tokens, request.trace.output_tokens
    if request.outputs == "prompt":
        return n
    return n + (output if request.outputs == "all" else np.maximum(output - 1, 0))


def block_keys(request: ReplayRequest) -> BlockKeys:
    """Return the keys of the trace's blocks as the trace and the request name them."""
    trace = request.trace
    turns = [None if turn < 0 else turn for turn in _continuations(request).tolist()]
    return BlockKeys(trace, request.block_size_tokens, turns)


def _continuations(request: ReplayRequest) -> NDArray[np.int32]:
    """Return the turn that names each request's outputs, negative for none."""
    if request.reuse_outputs:
        return continuations(request.trace)
    return np.full(len(request.trace), -1, np.int32)


def native_requests(request: ReplayRequest) -> _core.EngineRequests:
    """Return the requests that the core replays. Cost: the arrays are copied across the border once."""
    trace, size = request.trace, request.block_size_tokens
    per_id = trace.block_size // size
    named = np.diff(trace.id_offsets) * per_id
    turns = _continuations(request)
    keys = _core.Keys(
        trace.id_offsets.astype(np.int64),
        trace.block_ids.astype(np.uint32),
        per_id,
        np.minimum(trace.input_tokens // size, named).astype(np.uint32),
        np.where(turns < 0, np.uint32(NO_NEXT_TURN), turns.astype(np.uint32)),
    )
    return _core.EngineRequests(
        keys,
        trace.input_tokens.astype(np.uint64),
        total_tokens(request).astype(np.uint64),
        size,
        min(request.window, int(NO_NEXT_TURN)),  # no trace has more requests
        request.explain,
    )
