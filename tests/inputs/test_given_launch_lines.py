"""The launch lines that people wrote, with the settings each must give (``../shared/launch_lines``)."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from kvcache_sim.base.units import parse_size_bytes
from kvcache_sim.cli.main import run
from kvcache_sim.scenario.launch.names import model_of
from support.shared_files import ROOT

#: Lines that come out otherwise than their file says, each with what is different.
KNOWN = {
    "sglang-07": "refused: 16-bit weights of 671 B parameters on four GPUs",
    "vllm-serve-01": "refused: the rule of capacity leaves no space for a block",
}
#: Judged by ``test_kv_copies``.
ELSEWHERE = ("cpu_over_gpu",)


def _words(tree: Any) -> dict[str, str]:
    """Return model and degrees of a step time: ``roofline:M@h100:tp4,ep8``, or a measured one that names its TP."""
    text = str(_at(tree, "replica.step_time"))
    name = text.partition(":")[2].partition("@")[0]
    return {"model": name or str(_at(tree, "model"))} | dict(re.findall(r"\b(tp|ep)(\d+)", text))


def _at(tree: Any, path: str) -> Any:
    for key in path.split("."):
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def _size(value: Any, block: int) -> float:
    text = str(value).replace(" ", "")
    if found := re.fullmatch(r"(\d+)(tokens|blocks)", text):
        return float(found[1]) * (block if found[2] == "blocks" else 1)
    return float(parse_size_bytes(text)) if re.search(r"[A-Za-z]", text) else float(text)


def _same(key: str, want: Any, got: Any, block: int) -> bool:
    if isinstance(want, list):
        return any(_same(key, each, got, block) for each in want)
    if key.endswith(".capacity"):
        return got is not None and abs(_size(got, block) / _size(want, block) - 1) <= 0.01
    return got == want or (got is not None and str(got).lower() == str(want).lower())


def _found(key: str, tree: Any, words: dict[str, str]) -> Any:
    dp = _at(tree, "replica.dp")
    match key:
        case "tp" | "ep":
            return int(words.get(key, 1))
        case "dp":
            return dp or _at(tree, "cluster.machines") or 1
        case "gpus":
            return int(words.get("tp", 1)) * int(_at(tree, "replica.pp") or 1) * int(dp or 1)
        case "cache.enabled":
            return _at(tree, key) is not False
        case _:
            return _at(tree, key)


def _model(want: str | list[str], got: str) -> bool:
    names = want if isinstance(want, list) else [want]
    return any(model_of(got).startswith(model_of(name)) for name in names)


def wrong_settings(case: dict[str, Any], tree: Any, said: str) -> list[str]:
    """Return what of a case's expected settings, names and forbidden keys is not as it should be."""
    words = _words(tree)
    block = int(_at(tree, "cache.block_size") or 16)
    wrong = []
    for key, want in case["expected"].items():
        if key.startswith("wish:") or key in ELSEWHERE:
            continue
        if key == "gpu":
            right = "assum" in said
        elif key == "weights":
            right = want in str(_at(tree, "replica.step_time"))
        elif key == "model":
            right = _model(want, words["model"])
        else:
            right = _same(key, want, _found(key, tree, words), block)
        if not right:
            wrong.append(f"{key}: {want!r} expected, {_found(key, tree, words)!r}")
    wrong += [f"{name} not named" for name in case.get("must_name", []) if not _is_named(name, tree, said)]
    wrong += [f"{each['key']} set" for each in case.get("must_not", []) if _at(tree, each["key"]) is not None]
    return wrong


def _is_named(names: str, tree: Any, said: str) -> bool:
    return any(name in said or _at(tree, name) is not None for name in names.split("|"))


def _cases() -> list[dict[str, Any]]:
    lines = ROOT.parent / "shared" / "launch_lines" / "lines.jsonl"
    return [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []


@pytest.mark.parametrize("case", _cases(), ids=lambda case: case["id"])
def test_a_line_gives_its_settings_or_a_hint(
    case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in ({"line.txt": case["line"]} | (case.get("files") or {})).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    code = run(["init", "--from", "line.txt", *(("--gpu", case["gpu"]) if case["gpu"] else ())])
    out, err = capsys.readouterr()
    if case["id"] in KNOWN:
        assert code == 2
    elif code == 2:
        assert case["outcome"] != "accept" or case.get("also_right")
        for hint in case.get("hint_must_say", ()):
            assert any(word.lower() in err.lower() for word in hint.split("|")), err
    else:
        assert (code, case["outcome"]) == (0, "accept")
        assert not wrong_settings(case, yaml.safe_load(out), out + err)
