"""The values of an engine's release and the changes between two, as ``kvsim releases`` prints them."""

from __future__ import annotations

from typing import Any

from kvcache_sim.model.release_subject import Machine
from kvcache_sim.model.releases import EngineReleases, Release, ReleaseSetting, Row
from kvcache_sim.report.plain_table import labelled, plain_sentences


def releases_text(tables: list[EngineReleases]) -> str:
    """Return the releases that were read of each engine, and the newest with equal decisions."""
    lines = []
    for table in tables:
        read = f"{len(table.read)} releases read: {' '.join(map(str, table.read))}"
        lines += labelled(table.engine, read, 9)
        lines += labelled("", f"the newest that recorded decisions equal: {table.equal}", 9)
    return "\n".join(lines)


def release_sheet(release: Release, machine: Machine) -> dict[str, Any]:
    """Return every setting of a release with the rows that may count on a machine."""
    settings = {
        setting.name: _head(setting, release) | {"values": list(map(_row, rows))}
        for setting in release.table.settings.values()
        if (rows := machine.rows(setting, release))
    }
    notes = list(filter(None, [release.table.source, release.note]))
    return {"release": str(release), "machine": str(machine), "notes": notes, "settings": settings}


def release_changes(old: Release, new: Release, machine: Machine) -> dict[str, Any]:
    """Return each setting whose values differ between two releases of an engine.

    Its steps lead from one to the other: a release, and the rows that may count from it on. The first step
    is the older release.
    """
    between = (Release(old.engine, at) for at in old.table.read if old.version < at < new.version)
    path, changed = [old, *between, new], {}
    for setting in old.table.settings.values():
        rows = [machine.rows(setting, release) for release in path]
        values = [{(row.condition, str(row.given)) for row in there} for there in rows]
        if values[0] != values[-1]:
            comes_at = [k for k in range(len(path)) if k == 0 or values[k] != values[k - 1]]
            steps = [{"release": str(path[k].version), "values": list(map(_row, rows[k]))} for k in comes_at]
            changed[setting.name] = _head(setting, new) | {"steps": steps}
    return {
        "engine": old.engine,
        "from": str(old.version),
        "to": str(new.version),
        "machine": str(machine),
        "notes": list(dict.fromkeys(filter(None, [old.note, new.note]))),
        "changed": changed,
        "unchanged": [name for name in old.table.settings if name not in changed],
        "moves": sorted({setting["moves"] for setting in changed.values() if setting["moves"]}),
    }


def _head(setting: ReleaseSetting, release: Release) -> dict[str, Any]:
    needs = f"replica.scheduler: {release.engine}" if setting.own_scheduler else ""
    return {"about": setting.about, "moves": setting.moves, "needs": needs}


def _row(row: Row) -> dict[str, Any]:
    source = {"since": str(row.release), "file": row.file, "mark": row.mark}
    return {"condition": row.condition, "value": row.given, "set": row.taken} | source


def sheet_text(sheet: dict[str, Any]) -> str:
    """Return the sheet of a release as lines."""
    lines = [_title(sheet["release"], sheet)]
    for name, setting in sheet["settings"].items():
        rows = [f"{_value(row)} ({row['since']}, {row['file']}, {row['mark']})" for row in setting["values"]]
        lines += ["", _heading(name, setting), plain_sentences(rows, "  ")]
    return "\n".join(lines)


def changes_text(changes: dict[str, Any]) -> str:
    """Return the changes between two releases as lines; a step names the values that are new in it."""
    lines = [_title(f"{changes['engine']} {changes['from']} to {changes['to']}", changes)]
    for name, setting in changes["changed"].items():
        lines += ["", _heading(name, setting)]
        before: dict[str, Any] = {}
        for step in setting["steps"]:
            now = {row["condition"]: row for row in step["values"]}
            kept = {key for key, row in now.items() if before.get(key, {}).get("value") == row["value"]}
            came = [_value(row, before.get(key)) for key, row in now.items() if key not in kept]
            text = "; ".join(came or map(_value, now.values())) or "not in the table"
            lines += labelled(f"  {step['release']}", text, 16)
            before = now
    counts = f"{len(changes['changed'])} settings changed, {len(changes['unchanged'])} did not."
    keys = f"Keys that move: {', '.join(changes['moves']) or 'none'}."
    return "\n".join([*lines, "", plain_sentences([counts, keys])])


def _title(what: str, sheet: dict[str, Any]) -> str:
    return plain_sentences([f"{what} on {sheet['machine']}" if sheet["machine"] else what, *sheet["notes"]])


def _heading(name: str, setting: dict[str, Any]) -> str:
    about = f": {setting['about']}" if setting["about"] != name.replace("_", " ") else ""
    needs = f" (with {setting['needs']})" if setting["needs"] else ""
    moves = f"; moves {setting['moves']}{needs}" if setting["moves"] else ""
    return plain_sentences([name + about + moves])


def _value(row: dict[str, Any], before: dict[str, Any] | None = None) -> str:
    """Return a row's condition and value, and what its key is set to; of a list what comes and goes."""
    value, text = row["value"], _word(row["value"])
    if isinstance(value, list):
        old = before["value"] if before else []
        parts = [f"+{name}" if before else name for name in value if name not in old]
        text = " ".join([*parts, *(f"-{name}" for name in old if name not in value)]) or "none"
    elif row["set"] != value:
        text += f" (set to {_word(row['set'])})"
    return f"{row['condition']}: {text}" if row["condition"] else text


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
