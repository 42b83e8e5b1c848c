"""The printed definition of a policy: its table row, its rule from ``rules.toml``, and its source file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kvcache_sim._core import toml_values
from kvcache_sim.base.errors import UsageError
from kvcache_sim.policies.resolve import resolve_policy, row_of

#: What each eviction policy does, why, and an example: of its file in Rust (``docs/site/policy_pages.py``).
RULES = Path(__file__).with_name("rules.toml")


def policy_rules() -> dict[str, str]:
    """Return the rule of each eviction policy, from ``rules.toml``."""
    return toml_values(RULES.read_text(encoding="utf-8"))


def definition_of(text: str) -> str:
    """Return a policy's rule, setting and source; raises ``UsageError`` for an unknown name."""
    family, variant = resolve_policy(text)
    if family == "plugin":
        return _plugin_source(variant)
    row = row_of(text)
    lines = [f"{row.name}: {row.description}", f"from {row.paper}"]
    if row.setting:
        lines.append(f"setting: {row.setting.form}, such as {row.setting.example}")
    if row.evicts:
        how = {"ranked": "a key of each block", "queue": "queues of blocks"}[row.kind]
        rule = policy_rules().get(row.name, "")
        lines += ["", *_wrapped(rule), "", f"By {how}: rust/core/src/policies/{row.module}.rs"]
    return "\n".join(lines)


def _plugin_source(text: str) -> str:
    """Return where a plug-in comes from; nothing is imported."""
    file, _, name = text.rpartition(":")
    source = Path(file.rpartition(":")[2] or name)
    if source.suffix != ".py":
        return f"{text}: a plug-in from an installed package"
    try:
        content = source.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the policy file: {error.strerror}", where=str(source)) from None
    return f"{name}: a plug-in from {source}\nsha256 {hashlib.sha256(content).hexdigest()}"


def _wrapped(text: str) -> list[str]:
    import re
    import textwrap

    return [line for part in re.split(r"\n(?=Why: |Example: )", text) for line in textwrap.wrap(part, 96)]
