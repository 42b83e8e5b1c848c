"""What the text after ``--policy`` names: a row of the registry, a row with a setting, or a plug-in."""

from __future__ import annotations

import re
from difflib import get_close_matches

from kvcache_sim.errors import UsageError
from kvcache_sim.policies.registry import POLICIES

#: ``module:Name`` or ``pkg.mod:Name(setting=1)``, with or without an adapter before it.
_IN_A_MODULE = re.compile(
    r"(?:(?:vllm|sglang|libcachesim):)?([^\W\d][\w.]*):[^\W\d]\w*(?:\(.*\))?", re.DOTALL
)


def resolve_policy(text: str) -> tuple[str, str]:
    """Return the family (of ``replay.request.REPLAYERS``) and the variant of a policy; raises ``UsageError``.

    ``lru`` and ``sglang:lru`` are rows; ``ttl:300s`` is a row with a setting; ``file.py:Name``,
    ``pkg.mod:Name``, either with ``vllm:``, ``sglang:`` or ``libcachesim:`` before it, and
    ``libcachesim:file.py`` and the names of entry points are plug-ins.
    """
    rows = {row.name: row for row in POLICIES}
    if text in rows:
        return rows[text].family, rows[text].variant
    name, colon, _ = text.partition(":")
    if colon and name in rows and rows[name].family == "prefix":
        return "prefix", text
    module = _IN_A_MODULE.fullmatch(text)
    if ".py" in text or (module and module[1] not in {row.name.partition(":")[0] for row in POLICIES}):
        return "plugin", text
    if not colon:
        from kvcache_sim.policies.plugins.load import entry_point_names

        if text in entry_point_names():
            return "plugin", text
    close = get_close_matches(text, rows, n=1)
    raise UsageError(
        "unknown policy",
        where="--policy",
        got=repr(text),
        expected=f"did you mean {close[0]}?" if close else "one of: " + ", ".join(rows),
        hint="kvsim policies list",
    )
