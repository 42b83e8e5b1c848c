"""Releases of SGLang whose classic tree has no ``lock`` and ``checkpoint``: both in terms of what it has.

A request that ends is checked in by ``cache_finished_req``, which frees what the tree does not keep and unlocks.
"""

from __future__ import annotations

from typing import Any


def as_newer(cache: Any) -> None:
    """Give an older tree the calls that drivers make; newer ones stay as they are."""
    if hasattr(cache, "checkpoint"):
        return

    def lock(node: Any) -> Any:
        cache.inc_lock_ref(node)
        return node

    def match(params: Any, own: Any = cache.match_prefix) -> Any:
        params.key.token_ids = list(params.key.token_ids)  # compared with those of the tree, which are lists
        found = own(params)
        type(found).device_prefix_len = property(lambda result: len(result.device_indices))
        return found

    def checkpoint(req: Any, *, up_to: int) -> None:
        req.fill_ids = list(req.full_untruncated_fill_ids[:up_to])
        req.req_pool_idx, req.last_node, req.cache_protected_len = 0, req.lock, req.kv.cache_protected_len
        cache.cache_unfinished_req(req)
        req.kv.cache_protected_len, req.lock = req.cache_protected_len, req.last_node

    cache.lock, cache.unlock, cache.match_prefix, cache.checkpoint = (
        lock,
        cache.dec_lock_ref,
        match,
        checkpoint,
    )


def finish(cache: Any, req: Any, tokens: int) -> bool:
    """Check a request in at its end as an older tree does; False where the tree is a newer one."""
    if not hasattr(cache, "cache_finished_req"):
        return False
    req.pop_committed_kv_cache = lambda: tokens
    req.origin_input_ids, req.output_ids = list(req.full_untruncated_fill_ids[:tokens]), []
    req.req_pool_idx, req.last_node, req.cache_protected_len = 0, req.lock, req.kv.cache_protected_len
    cache.cache_finished_req(req)
    return True
