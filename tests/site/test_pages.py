"""The pages of the project name paths that exist, and links lead from README to every page of docs/."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "kvcache_sim"
#: Pages of docs/ that the site makes are in its navigation alone.
NAVIGATION = {
    ROOT / "docs" / page for page in re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
}
PAGES = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "README.md",
    *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md")),
]


def named_paths(text: str) -> list[str]:
    """Return what a page names in backticks and looks like a file or a folder of the project."""
    names = re.findall(r"`([a-z_][\w-]*(?:/[\w.-]+)*/|[\w-]+(?:/[\w.-]+)*\.py|rust/[\w./-]+)`", text)
    return sorted({n for n in names if n.rstrip("/").count("/")})


def exists(name: str) -> bool:
    return any((base / name).exists() for base in (ROOT, PACKAGE, ROOT / "tests"))


@pytest.mark.parametrize("page", PAGES)
def test_named_paths_exist(page):
    missing = [name for name in named_paths((ROOT / page).read_text()) if not exists(name)]
    assert not missing


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text())
    targets = {link: ((ROOT / page).parent / link).resolve() for link in links}
    made = (
        NAVIGATION if page.startswith("docs/") else set()
    )  # whose links tests/site/test_docs_site.py follows
    assert not [link for link, target in targets.items() if not (target.exists() or target in made)]


def test_links_lead_from_the_readme_to_every_page():
    reached, open_pages = {ROOT / "README.md"}, [ROOT / "README.md"]
    while open_pages:
        page = open_pages.pop()
        targets = re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", page.read_text())
        found = {(page.parent / target).resolve() for target in targets} - reached
        reached |= found
        open_pages += [each for each in found if each.exists()]
    assert {ROOT / page for page in PAGES} <= reached
