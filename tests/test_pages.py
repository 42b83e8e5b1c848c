"""The pages of the project name paths that exist, and README leads to every page of docs/."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "kvcache_sim"
#: The first page of the site, which leads to pages that are made for it.
FIRST = "docs/index.md"
PAGES = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "README.md",
    *sorted(f"docs/{p.name}" for p in ROOT.glob("docs/*.md")),
]


def named_paths(text: str) -> list[str]:
    """Return what a page names in backticks and looks like a file or a folder of the project."""
    names = re.findall(r"`([a-z_][\w-]*(?:/[\w.-]+)*/|[\w-]+(?:/[\w.-]+)*\.py|rust/[\w./-]+)`", text)
    return sorted({n for n in names if n.rstrip("/").count("/")})


def exists(name: str) -> bool:
    return any((base / name).exists() for base in (ROOT, PACKAGE))


@pytest.mark.parametrize("page", PAGES)
def test_named_paths_exist(page):
    missing = [name for name in named_paths((ROOT / page).read_text()) if not exists(name)]
    assert not missing


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text())
    made = (
        set(re.findall(r"([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)) if page == FIRST else set()
    )
    lost = [link for link in links if not ((ROOT / page).parent / link).exists()]
    assert not set(lost) - made  # pages that the site makes: tests/test_docs_site.py


def test_a_path_that_does_not_exist_is_seen():
    named = named_paths("go to `policies/`, `serving/nowhere.py` and `rust/core`")
    assert [name for name in named if not exists(name)] == ["serving/nowhere.py"]
    assert len(named_paths((ROOT / "ARCHITECTURE.md").read_text())) > 25


def test_readme_links_every_page():
    readme = (ROOT / "README.md").read_text()
    assert not [page for page in PAGES if page.startswith("docs/") and f"({page})" not in readme]
