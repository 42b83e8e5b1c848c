"""The printed definition of a policy: its table row, its rule from ``rules.toml``, and its source file."""

from __future__ import annotations

import tomllib
from pathlib import Path

from kvcache_sim.policies.resolve import resolve_policy, row_of


def policy_rules() -> dict[str, str]:
    """Return the rule of each eviction policy, from ``rules.toml``."""
    return tomllib.loads(Path(__file__).with_name("rules.toml").read_text(encoding="utf-8"))


def definition_of(text: str) -> str:
    """Return a policy's rule, setting and source; raises ``UsageError`` for an unknown name."""
    family, variant = resolve_policy(text)
    if family == "plugin":
        from kvcache_sim.policies.plugins.load import load_plugin

        plugin = load_plugin(variant)
        return f"{plugin.name}: a plug-in from {plugin.source}\nsha256 {plugin.source_sha256}"
    row = row_of(text)
    lines = [f"{row.name}: {row.description}", f"from {row.paper}"]
    if row.setting:
        lines.append(f"setting: {row.setting.form}, such as {row.setting.example}")
    if row.evicts:
        how = {"ranked": "a key of each block", "queue": "queues of blocks"}[row.kind]
        rule = policy_rules().get(row.name, "")
        lines += ["", *_wrapped(rule), f"By {how}: rust/core/src/policies/{row.module}.rs"]
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    import textwrap

    return [*textwrap.wrap(text, 96), ""] if text else []
