"""Pages that the site makes: help, docstrings, figures, tables of docs/data, notebooks, pages of the root.

A hook of mkdocs (``mkdocs.yml``). A page shows what a command prints or a file holds: no text is kept twice.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import kvcache_sim
from kvcache_sim.cli import VERBS
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.metrics.figures import FIGURES
from kvcache_sim.metrics.glossary import ALSO
from kvcache_sim.scenario.launch.flags import launch_engines
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(Path(__file__).parent))
from data_tables import page_text, read_pages, read_table, rows_text  # noqa: E402
from policy_pages import policies_page, routers_page  # noqa: E402
from whole_runs import whole_runs_page  # noqa: E402

#: Pages outside docs/ and their paths in the site.
ALONGSIDE = {
    "ARCHITECTURE.md": "develop/architecture.md",
    "CHANGELOG.md": "develop/changelog.md",
    "CONTRIBUTING.md": "develop/contributing.md",
    "scenarios/README.md": "reference/scenarios.md",
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Refuse a page that the navigation does not name."""
    named = set(re.findall(r"[\w/-]+\.md", json.dumps(config.nav)))
    orphans = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
    orphans = [page for page in orphans if page not in named]
    if orphans:
        raise SystemExit(f"mkdocs.yml: pages not in the navigation: {', '.join(orphans)}")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here, and notebooks in place of their files."""
    made = {
        "reference/commands.md": commands(),
        "reference/scenario-keys.md": topic("Keys of a scenario", "scenario", "units", "channels"),
        "reference/flags.md": flags(),
        "reference/figures.md": figures(),
        "reference/glossary.md": glossary(),
        "reference/api.md": api(),
        "reference/eviction-policies.md": policies_page(),
        "reference/routers.md": routers_page(),
        "reference/whole-runs.md": whole_runs_page(),
    }
    made |= {page.path: page_text(page) for page in read_pages()}
    notebooks = sorted(DOCS.rglob("*.ipynb"))
    made |= {str(path.relative_to(DOCS).with_suffix(".md")): notebook(path) for path in notebooks}
    made |= {page: alongside(ROOT / name, page) for name, page in ALONGSIDE.items()}
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


def flags() -> str:
    """Return every flag and variable of the engines with its key, or why it has none."""
    parts = [
        "# Flags of engines and their keys\n",
        "What `kvsim init --from` makes of a line, from its tables.\n",
    ]
    for engine in launch_engines():
        parts += [
            f"## {engine.name}\n",
            f"Read in {engine.source}.\n",
            "| flag | releases | key |",
            "|---|---|---|",
        ]
        for flag in (*engine.flags.values(), *engine.variables.values()):
            names = ", ".join(f"`{name}`" for name in (flag.name, *flag.also))
            releases = f"{flag.since or 'all'}{f' to {flag.until}' if flag.until else ''}"
            reasons = {"cannot matter": flag.no_effect, "not simulated": flag.not_simulated}
            said = "; ".join(f"{kind}: {why}" for kind, why in reasons.items() if why)
            parts.append(f"| {names} | {releases} | {f'`{flag.key}`' if flag.key else said} |")
        parts.append("")
    return "\n".join(parts)


def figures() -> str:
    """Return every figure of ``summary.json``, after the families of their names and what holds for all."""
    families = read_table("figure-families")
    parts = ["# The figures of a run\n", families.about.strip() + "\n", rows_text(families)]
    parts += [f"- {note}" for note in families.notes]
    parts += ["\n## Every figure\n", "| figure | unit | meaning |", "|---|---|---|"]
    for figure in FIGURES:
        also = f" Also: {ALSO[figure.name]}." if figure.name in ALSO else ""
        parts.append(
            f"| `{figure.name}` | {figure.unit} | {(figure.meaning + also).replace('|', chr(92) + '|')} |"
        )
    return "\n".join([*parts, ""])


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
    parts = ["# API from the docstrings\n\n[Python](../how-to/python.md) has the same names by task.\n"]
    for name in kvcache_sim.__all__:
        parts.append(f"::: kvcache_sim.{kvcache_sim._NAMES[name]}.{name}\n")
    return "\n".join(parts)


def alongside(path: Path, page: str) -> str:
    """Return a page of the project's root with its links led into the site."""

    def link(match: re.Match[str]) -> str:
        target, _, anchor = match[1].partition("#")
        found = (path.parent / target).resolve()
        known = {(ROOT / name).resolve(): index for name, index in ALONGSIDE.items()}
        if found not in known and DOCS not in found.parents:
            return match[0]
        inside = known.get(found) or str(found.relative_to(DOCS))
        relative = os.path.relpath(inside, os.path.dirname(page))
        return f"]({relative}{'#' + anchor if anchor else ''})"

    return re.sub(r"\]\(([^)\s:]+)\)", link, path.read_text(encoding="utf-8"))


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
