"""Which implementation decides: the native core, or the slow references, known by name only."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal, get_args

from kvcache_sim.errors import UsageError

#: The native core, or the references in plain Python that its tests compare it with.
Backend = Literal["native", "python"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)

#: Name → module and attribute of each reference. Nothing outside ``reference/`` imports from there.
REFERENCES = {
    "digest": "kvcache_sim.reference.digest:RollingDigest",
    "keys": "kvcache_sim.reference.store:ReferenceKeys",
    "store": "kvcache_sim.reference.store:ReferenceStore",
    "store.policy-order": "kvcache_sim.reference.store.orders:PolicyOrder",
    "store.plugin-order": "kvcache_sim.reference.store.orders:PluginOrder",
    "policies": "kvcache_sim.reference.policies.by_name:make_policy",
}


def reference(name: str) -> Any:
    """Return a reference by its name in ``REFERENCES``; its module is imported now.

    Raises UsageError where there is none any more.
    """
    if name not in REFERENCES:
        what = "engines' caches run in the core alone"
        raise UsageError(what, where="--backend", got="python", expected="native")
    module, _, attribute = REFERENCES[name].partition(":")
    return getattr(import_module(module), attribute)


def checked_backend(text: str) -> Backend:
    """Return a backend's name; raises UsageError for any other text."""
    for backend in BACKENDS:
        if text == backend:
            return backend
    raise UsageError("unknown backend", where="backend", got=repr(text), expected="native or python")
