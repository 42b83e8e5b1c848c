"""The site that ``make docs`` builds: strictly, each page in the navigation, pictures and links inside it there."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import kvcache_sim as kv
import pytest
from kvcache_sim.cli import VERBS
from kvcache_sim.metrics.figures import FIGURES

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("site")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(target)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    return target


class Links(HTMLParser):
    """The targets of a page's links and pictures, and the names it has for others'."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        own = dict(attrs)
        self.targets += [own[key] for key in ("href", "src") if own.get(key)]
        self.names |= {own[key] for key in ("id", "name") if own.get(key)}


def test_every_link_and_picture_of_the_site_is_there(site):
    pages = {path: Links(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}
    lost = []
    for page, links in pages.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            file = file / "index.html" if file.is_dir() else file
            names = pages[file].names if file in pages else set()
            anchored = (
                not parts.fragment or parts.fragment.startswith("__") or unquote(parts.fragment) in names
            )
            if not file.exists() or (file in pages and not anchored):
                lost.append(f"{page.name}: {target}")
    assert len(pages) > 30
    assert not lost


def test_what_is_written_elsewhere_has_its_page(site):
    commands = (site / "reference" / "commands.html").read_text()
    assert [verb for verb in VERBS if f"Usage: kvsim {verb}" not in commands] == []
    api = (site / "reference" / "api.html").read_text()
    assert [name for name in kv.__all__ if not re.search(rf'id="kvcache_sim\.[\w.]+\.{name}"', api)] == []
    figures = (site / "reference" / "figures.html").read_text().replace("&lt;", "<").replace("&gt;", ">")
    assert [figure.name for figure in FIGURES if f"<code>{figure.name}</code>" not in figures] == []
    assert "hand-over" in (site / "reference" / "glossary.html").read_text()
    assert "router.cache_threshold" in (site / "reference" / "scenario-keys.html").read_text()
    assert "<table" in (site / "how-to" / "tiers-and-ttft.html").read_text()


def test_pictures_of_the_pages_are_drawn_by_a_command():
    drawn = re.search(r"for picture in ([\w -]+);", (ROOT / "Makefile").read_text())
    assert drawn is not None
    shown = set()
    for page in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")):
        shown |= set(re.findall(r"\]\((?:docs/|\.\./)?pictures/([\w-]+)\.svg\)", page.read_text()))
    assert shown == set(drawn[1].split())
    assert {path.stem for path in (ROOT / "docs" / "pictures").iterdir()} == shown
