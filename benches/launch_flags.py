"""Names of an engine's flags by release, read from the Python files of its wheels.

``python benches/launch_flags.py vllm FOLDER`` prints one JSON object per flag, with FOLDER/VERSION/vllm as
unpacked wheels: its names, what it takes, its first and last release, and the first words of its help.
Nothing is imported: calls of ``add_argument`` and fields of classes are read from the syntax trees.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvcache_sim.model.releases import parse_version

#: Where an engine declares its flags, below the unpacked wheel.
_FILES = {
    "vllm": (
        "vllm/engine/arg_utils.py",
        "vllm/entrypoints/openai/cli_args.py",
        "vllm/entrypoints/common/cli_args.py",
        "vllm/entrypoints/launchers/cli_args.py",
        "vllm/entrypoints/cli/serve.py",
        "vllm/engine/async_llm_engine.py",
    ),
    "sglang": ("sglang/srt/server_args.py", "sglang/srt/arg_groups/fields/*.py"),
}
_CLASSES = {"vllm": ("vllm/config.py", "vllm/config/*.py"), "sglang": ()}
#: Loops that declare a flag for each field of these classes.
_WHOLE = re.compile(r"(Base)?FrontendArgs$")

Flag = dict[str, Any]


def flags_of(engine: str, wheel: Path) -> dict[str, Flag]:
    """Return the flags of one unpacked wheel by their first long name."""
    trees = [ast.parse(path.read_text()) for path in _paths(wheel, _FILES[engine])]
    classes = {
        node.name: node
        for tree in [*(ast.parse(path.read_text()) for path in _paths(wheel, _CLASSES[engine])), *trees]
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found: dict[str, Flag] = {}
    for tree in trees:
        for flag in (*_calls(tree, classes), *_annotated(tree), *_frontend(tree)):
            long = [name for name in flag["names"] if name.startswith("--")]
            if long and long[0] not in found:
                found[long[0]] = flag
    return found


def _paths(wheel: Path, patterns: tuple[str, ...]) -> list[Path]:
    return [path for pattern in patterns for path in sorted(wheel.glob(pattern))]


def _calls(tree: ast.AST, classes: dict[str, ast.ClassDef]) -> Iterator[Flag]:
    """Yield the flags of ``add_argument("--name", …)``, with the fields that their ``**kwargs`` name."""
    sources = {
        node.targets[0].id: node.value.args[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and getattr(node.value.func, "id", "") == "get_kwargs"
        and isinstance(node.value.args[0], ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "add_argument":
            continue
        names = [one.value for one in node.args if isinstance(one, ast.Constant)]
        if not names or not str(names[0]).startswith("-"):
            continue
        given = {one.arg: one.value for one in node.keywords if one.arg}
        takes, text = _takes(given), _text(given.get("help"))
        for one in node.keywords:
            for part in ast.walk(one.value) if one.arg is None else ():
                if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Constant):
                    source = sources.get(getattr(part.value, "id", ""), "")
                    takes, text = _of_field(classes, source, str(part.slice.value), takes, text)
        yield {"names": names, "takes": takes, "about": text}


def _of_field(
    classes: dict[str, ast.ClassDef], source: str, field: str, takes: str, text: str
) -> tuple[str, str]:
    node = classes.get(source)
    for at, one in enumerate(node.body if node else ()):
        if isinstance(one, ast.AnnAssign) and getattr(one.target, "id", "") == field:
            after = node.body[at + 1] if node and at + 1 < len(node.body) else None
            doc = (
                after.value.value
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                else ""
            )
            return (_of_type(ast.unparse(one.annotation)) if takes == "value" else takes), text or str(doc)
    for base in node.bases if node else ():
        if isinstance(base, ast.Name) and base.id in classes:
            return _of_field(classes, base.id, field, takes, text)
    return takes, text


def _of_type(annotation: str) -> str:
    """Return what a field's flag takes; of a union of types the engine asks in this order."""
    text = re.sub(r"Optional\[(.*)\]$", r"\1 | None", annotation)
    plain = set(re.sub(r"\[[^\[\]]*(\[[^\[\]]*\][^\[\]]*)*\]", "", text).replace(" ", "").split("|")) - {
        "None"
    }
    if plain == {"bool", "str"}:
        return "optional"
    if "bool" in plain:
        return "pair"
    return "several" if plain & {"list", "set", "tuple", "List", "Tuple"} else "value"


def _takes(given: dict[str, ast.expr]) -> str:
    for key, value in zip(*_items(given.get("action_kwargs")), strict=True):
        given = {**given, str(getattr(key, "value", "")): value}
    action = ast.unparse(given["action"]) if "action" in given else ""
    nargs = ast.unparse(given["nargs"]).strip("'\"") if "nargs" in given else ""
    if "BooleanOptional" in action:
        return "pair"
    if "store_true" in action or "store_false" in action or "store_const" in action or "StoreTrue" in action:
        return "switch"
    if "StoreConst" in action or action == "DeprecatedAction":
        return "value" if nargs == "None" else "switch"
    return {"?": "optional", "+": "several", "*": "several"}.get(nargs, "value")


def _items(node: ast.expr | None) -> tuple[list[ast.expr | None], list[ast.expr]]:
    return (node.keys, node.values) if isinstance(node, ast.Dict) else ([], [])


def _text(node: ast.expr | None) -> str:
    return " ".join(str(one.value) for one in ast.walk(node) if isinstance(one, ast.Constant)) if node else ""


def _annotated(tree: ast.AST) -> Iterator[Flag]:
    """Yield SGLang's flags from 0.5.14 on: fields of type ``A[type, help]`` or ``A[type, Arg(…)]``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.annotation, ast.Subscript):
            continue
        if getattr(node.annotation.value, "id", "") != "A" or not isinstance(node.target, ast.Name):
            continue
        parts = list(getattr(node.annotation.slice, "elts", ()))
        meta = next((one for one in parts[1:] if isinstance(one, ast.Call) and one.func.id == "Arg"), None)
        given = {one.arg: one.value for one in meta.keywords if one.arg} if meta else {}
        texts = [one for one in parts[1:] if isinstance(one, (ast.Constant, ast.JoinedStr, ast.BinOp))]
        if "no_cli" in given or (meta is None and not texts):
            continue
        name = getattr(given.get("cli_name"), "value", None) or "--" + node.target.id.replace("_", "-")
        aliases = [one.value for one in getattr(given.get("aliases"), "elts", ())]
        kind = _of_type(ast.unparse(parts[0]))
        takes = _takes(given)
        if takes == "value" and "type_parser" not in given and "action" not in given:
            takes = "switch" if kind == "pair" else kind
        yield {
            "names": [name, *aliases],
            "takes": takes,
            "about": _text(given.get("help") or (texts or [None])[0]),
        }


def _frontend(tree: ast.AST) -> Iterator[Flag]:
    """Yield vLLM's flags of the HTTP server from 0.9 on: one for each field of its class."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef) or not _WHOLE.search(node.name):
            continue
        for one in node.body:
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                name = "--" + one.target.id.replace("_", "-")
                yield {"names": [name], "takes": _of_type(ast.unparse(one.annotation)), "about": ""}


def _before(rows: dict[str, Flag], names: list[str]) -> str:
    """Return the name of a flag's row from an earlier release, "" if there is none."""
    if names[0] in rows:
        return names[0]
    long = {name for name in names if name.startswith("--")}
    return next((name for name, row in rows.items() if long & {name, *row["also"]}), "")


def main(engine: str, folder: str) -> None:
    """Print the flags of all unpacked wheels of an engine."""
    versions = sorted((path.name for path in Path(folder).iterdir()), key=parse_version)
    rows: dict[str, Flag] = {}
    for version in versions:
        for name, flag in flags_of(engine, Path(folder, version)).items():
            row = rows.pop(_before(rows, flag["names"]), {"also": [], "since": version}) | {"flag": name}
            rows[name] = row
            row["also"] = sorted({*row["also"], *flag["names"]} - {name})
            row |= {"takes": flag["takes"], "until": version, "about": " ".join(flag["about"].split())[:300]}
    for name in sorted(rows):
        row = rows[name]
        if row["until"] == versions[-1]:
            del row["until"]
        print(json.dumps(row))


if __name__ == "__main__":
    main(*sys.argv[1:3])
