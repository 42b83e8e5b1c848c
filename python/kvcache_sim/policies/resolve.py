"""Parser of the text after ``--policy``: a row of the table, a row with a setting, or a plug-in."""

from __future__ import annotations

import re

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.spelling import close_matches
from kvcache_sim.policies.settings import DEFAULT_ATTENTION_TOKENS, Variant, setting_refused
from kvcache_sim.policies.table import POLICIES, WHOLE_NAMES, PolicyRow

_ROWS = {row.name: row for row in POLICIES}

#: ``module:Name`` or ``pkg.mod:Name(setting=1)``, with or without an adapter before it.
_IN_A_MODULE = r"(?:(?:vllm|sglang|libcachesim):)?([^\W\d][\w.]*):[^\W\d]\w*(?:\(.*\))?"


def resolve_policy(text: str) -> tuple[str, str]:
    """Return the family (of ``replay.request.REPLAYERS``) and the variant of a policy; raises ``UsageError``.

    ``lru`` and ``sglang:lru`` are rows; ``ttl:300s`` is a row with a setting; ``file.py:Name``,
    ``pkg.mod:Name``, either with ``vllm:``, ``sglang:`` or ``libcachesim:`` before it, and
    ``libcachesim:file.py`` and the names of entry points are plug-ins.
    """
    if text in _ROWS:
        return _ROWS[text].family, _ROWS[text].variant
    engine_row = _ROWS.get(":".join(text.split(":")[:2]))
    if engine_row is not None and engine_row.family != "prefix" and engine_row.setting:
        return engine_row.family, text.partition(":")[2]
    name, colon, _ = text.partition(":")
    if colon and name in _ROWS and _ROWS[name].family in WHOLE_NAMES:
        return _ROWS[name].family, text
    module = re.fullmatch(_IN_A_MODULE, text)
    if ".py" in text or (module and module[1] not in {row.name.partition(":")[0] for row in POLICIES}):
        return "plugin", text
    if not colon:
        from kvcache_sim.policies.plugins.load import entry_point_names

        if text in entry_point_names():
            return "plugin", text
    raise _unknown(text)


def row_of(text: str) -> PolicyRow:
    """Return the row of a text such as ``lru`` or ``ttl:300s``; raises ``UsageError`` for any other text."""
    row = _ROWS.get(text) or _ROWS.get(text.partition(":")[0])
    if row is None:
        raise _unknown(text)
    return row


def parse_variant(text: str, block_size_tokens: int) -> Variant:
    """Parse a policy with its setting, such as ``ttl:300s``; raises ``UsageError``."""
    name, colon, setting = text.partition(":")
    grammar = row_of(name).setting
    variant = Variant(name, attention_blocks=DEFAULT_ATTENTION_TOKENS / block_size_tokens)
    if not colon:
        if grammar and grammar.required:
            raise setting_refused(text, f"a setting, such as {grammar.example}")
        return variant
    if grammar is None:
        raise UsageError(f"{name} takes no setting", where="--policy", got=repr(text))
    try:
        return grammar.read(variant, setting, block_size_tokens)
    except UsageError as error:
        error.where = error.where or "--policy"
        raise


def _unknown(text: str) -> UsageError:
    # an engine's name without a strategy means its default, the engine's first row
    close = [name for name in _ROWS if name.startswith(f"{text}:")][:1] or close_matches(text, _ROWS, n=1)
    return UsageError(
        "unknown policy",
        where="--policy",
        got=repr(text),
        expected=f"a policy such as {close[0]}" if close else "one of: " + ", ".join(_ROWS),
        hint=f"did you mean {close[0]}? kvsim policies list" if close else "kvsim policies list",
    )
