"""Pages of the site that are written elsewhere: help of the verbs, docstrings, notebooks, pages beside docs/.

A hook of mkdocs (``mkdocs.yml``). What a page shows is what the command prints, or what stands in the file:
no text is
kept twice.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import kvcache_sim
from kvcache_sim.cli import VERBS
from kvcache_sim.cli.main import run as kvsim
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
#: Pages beside docs/: where they stand in the site.
ALONGSIDE = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "scenarios/README.md": "scenarios.md",
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lead to pages that the navigation does not name yet."""
    named = set(re.findall(r"[\w-]+\.md", json.dumps(config.nav)))
    others = sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.name not in named)
    config.nav = [*(config.nav or ()), *([{"More": others}] if others else ())]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here, and notebooks in place of their files."""
    made = {
        "commands.md": commands(),
        "scenario-keys.md": topic("Keys of a scenario", "scenario", "units", "channels"),
        "glossary.md": glossary(),
        "api.md": api(),
    }
    made |= {f"{path.stem}.md": notebook(path) for path in sorted((ROOT / "docs").glob("*.ipynb"))}
    made |= {page: alongside(ROOT / name) for name, page in ALONGSIDE.items()}
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    for listed in list(files):
        if listed.src_uri.endswith(".ipynb"):
            files.remove(listed)
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links to notebooks to their pages."""
    return markdown.replace(".ipynb)", ".md)")


def printed(*argv: str) -> str:
    """Return what a command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = kvsim(list(argv))
    if code:
        raise SystemExit(f"kvsim {' '.join(argv)}: exit {code}")
    return out.getvalue().rstrip()


def block(text: str) -> str:
    return f"```text\n{text}\n```\n"


def commands() -> str:
    parts = ["# Commands\n", block(printed("--help"))]
    parts += [f"## kvsim {verb}\n\n{block(printed(verb, '--help'))}" for verb in VERBS]
    return "\n".join([*parts, "## Exit codes\n", block(printed("help", "exit-codes"))])


def topic(title: str, *names: str) -> str:
    return "\n".join([f"# {title}\n", *(block(printed("help", name)) for name in names)])


def glossary() -> str:
    """Return the words of ``kvsim help glossary`` as a table of word and meaning."""
    head, *entries = printed("help", "glossary").split("\n\n")
    rows = []
    for entry in entries:
        word, *meaning = [line.strip() for line in entry.splitlines()]
        rows.append(f"| {word} | {' '.join(meaning).replace('|', chr(92) + '|')} |")
    return "\n".join(["# Glossary\n", f"{head}\n", "| word | meaning |", "|---|---|", *rows, ""])


def api() -> str:
    """Return the page of all public names, from their docstrings."""
    parts = ["# API from the docstrings\n\n[Python API](python-api.md) tells the same by task.\n"]
    for name in kvcache_sim.__all__:
        parts.append(f"::: kvcache_sim.{kvcache_sim._NAMES[name]}.{name}\n")
    return "\n".join(parts)


def alongside(path: Path) -> str:
    """Return a page of the project's root with its links led into the site."""
    text = path.read_text(encoding="utf-8")
    for name, page in ALONGSIDE.items():
        text = text.replace(f"]({name})", f"]({page})")
    return text.replace("](docs/", "](")


def notebook(path: Path) -> str:
    """Return a notebook's cells with the outputs that are kept in it."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [output(one) for one in cell["outputs"]]
    return "\n\n".join(parts)


def output(kept: dict[str, Any]) -> str:
    """Return one output of a cell: HTML where there is any, else text."""
    if kept["output_type"] == "stream":
        return block("".join(kept["text"]).rstrip())
    page = "".join(kept["data"].get("text/html", []))
    return " ".join(page.split("\n")) if page else block("".join(kept["data"]["text/plain"]))
