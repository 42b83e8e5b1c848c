"""A policy's definition for people: its row, and its source in plain Python where it has one."""

from __future__ import annotations

from pathlib import Path

from kvcache_sim.policies.resolve import resolve_policy, row_of

_SOURCES = Path(__file__).parents[1] / "reference" / "policies"


def definition_of(text: str) -> str:
    """Return what a policy is; raises ``UsageError`` for an unknown name."""
    family, variant = resolve_policy(text)
    if family == "plugin":
        from kvcache_sim.policies.plugins.load import load_plugin

        plugin = load_plugin(variant)
        return f"{plugin.name}: a plug-in from {plugin.source}\nsha256 {plugin.source_sha256}"
    row = row_of(text)
    head = f"{row.name}: {row.description}\nfrom {row.paper}\n"
    if row.setting:
        head += f"setting: {row.setting.form}, such as {row.setting.example}\n"
    if not row.evicts:
        return head
    source = (_SOURCES / f"{row.module}.py").read_text().rstrip()
    return (
        f"{head}\nThe definition in plain Python (the core runs it natively, with equal results):\n\n{source}"
    )
