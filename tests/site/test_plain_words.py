"""Plain words: banned words, openings of docs, length of output sentences, size and links of pages.

``python tests/site/test_plain_words.py [--list RULE] [PREFIX ...]`` prints every offence, or those of one rule. Words and
limits are in ``tests/support/words.toml``.
"""

import argparse
import ast
import io
import keyword
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORDS = tomllib.loads((ROOT / "tests" / "support" / "words.toml").read_text())
SOURCES = (".py", ".pyi", ".rs", ".md")
#: Strings in these are output for people; elsewhere sentences in strings are test inputs.
OUTPUT = ("python/", "rust/")

RUST = re.compile(
    r"""(?P<doc>//[/!][^\n]*)|(?P<comment>//[^\n]*|/\*.*?\*/)
|(?P<raw>b?r(?P<h>\#*)".*?"(?P=h))|(?P<str>b?"(?:\\.|[^"\\])*")
|(?P<char>b?'(?:\\(?:x..|u\{[^}]*\}|.)|[^'\\\n])')|(?P<life>'[A-Za-z_]\w*)
|(?P<id>[A-Za-z_]\w*)|(?P<num>\d\w*(?:\.\d\w*)?)""",
    re.X | re.S,
)
OPENING = re.compile(rf"(?:{'|'.join(WORDS['openings']['words'])})\b")
BANNED = re.compile("|".join(rf"(?P<{name}>\b(?:{p})\b)" for name, p in WORDS["banned"].items()), re.I)
CONTEXT = re.compile("|".join(rf"(?P<{name}>\b(?:{p})\b)" for name, p in WORDS["context"].items()), re.I)
IDIOMS = re.compile("|".join(rf"\b(?:{p})\b" for own in WORDS["idioms"].values() for p in own), re.I)
ALLOWED = re.compile("|".join(rf"\b(?:{p})\b" for p in WORDS["allowed"]["phrases"]), re.I)
RULES = ("identifier", "banned", "context", "opening", "sentence")


class Piece(NamedTuple):
    """A part of a file: ``kind`` is ``id``, ``doc``, ``comment``, ``string`` or ``page``; ``line`` counts from 1."""

    kind: str
    text: str
    line: int


class Offence(NamedTuple):
    """A place where a rule is broken."""

    rule: str
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


@cache
def files() -> list[str]:
    """Return the tracked files under the rules, without the exempt ones."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    exempt = tuple(WORDS["exempt"])
    return [
        f
        for f in listed.splitlines()
        if f.endswith(SOURCES) and not f.startswith(exempt) and (ROOT / f).exists()
    ]


def python_pieces(text: str) -> Iterator[Piece]:
    """Yield identifiers, docstrings, comments and strings of a Python file."""
    docs = {}
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and body:
            first = body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                docs[first.value.lineno] = first.value.value
    before, comment, at = 0, "", 0
    literals, first_line = "", 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            body = token.string.lstrip("#: ")
            comment, at = (
                (f"{comment} {body}", at)
                if before == token.start[0] - 1 and comment
                else (body, token.start[0])
            )
            before = token.start[0]
            continue
        if token.type == tokenize.NL:
            continue
        if literals and token.type != tokenize.STRING:
            yield Piece("string", literals, first_line)
            literals = ""
        if comment:
            yield Piece("comment", comment, at)
            comment = ""
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            yield Piece("id", token.string, token.start[0])
        elif token.type == tokenize.STRING and docs.get(token.start[0]) is not None:
            yield Piece("doc", docs.pop(token.start[0]), token.start[0])
        elif token.type == tokenize.STRING:
            # Literals that follow each other are one sentence.
            literal = re.sub(r"^\w*('''|\"\"\"|'|\")|('''|\"\"\"|'|\")$", "", token.string)
            first_line = first_line if literals else token.start[0]
            literals += re.sub(r"\{[^{}]*\}", "0", literal)


def rust_pieces(text: str) -> Iterator[Piece]:
    """Yield identifiers, docs, comments and strings of a Rust file; consecutive comment lines are one piece."""
    kind, body, at, last = "", "", 0, 0
    for found in RUST.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        own = "raw" if found.group("raw") else str(found.lastgroup)
        if own in ("doc", "comment"):
            words = re.sub(r"^(//[/!]?|/\*+)|\*/$", "", found.group()).strip()
            if own == kind and line == last + 1:
                body += " " + words
            else:
                if body:
                    yield Piece(kind, body, at)
                kind, body, at = own, words, line
            last = line
        elif own == "id":
            yield Piece("id", found.group(), line)
        elif own in ("str", "raw"):
            yield Piece("string", re.sub(r"\{[^{}]*\}", "0", found.group().strip('br#"')), line)
    if body:
        yield Piece(kind, body, at)


def pieces(path: str) -> Iterator[Piece]:
    """Yield what the rules read of a file."""
    text = (ROOT / path).read_text()
    if path.endswith(".md"):
        fence = False
        for number, line in enumerate(text.splitlines(), 1):
            fence ^= line.lstrip().startswith("```")
            if not fence:
                yield Piece("page", line, number)
        return
    yield from rust_pieces(text) if path.endswith(".rs") else python_pieces(text)


def prose(text: str) -> str:
    """Return a text without its code spans, links' targets, quotes of names and allowed phrases."""
    text = re.sub(r"<[^<>\n]*>|``[^`]*``|`[^`]*`|\]\([^)]*\)|\S+\.(?:py|rs|md|toml|json)\b", " ", text)
    return ALLOWED.sub(" ", text)


def name_words(name: str) -> str:
    """Return a name's words, separated by spaces."""
    split = re.sub(r"([a-z0-9])([A-Z])|([A-Z])(?=[A-Z][a-z])", lambda m: f"{m[1] or m[3]} {m[2] or ''}", name)
    return " ".join(split.replace("_", " ").split()).lower()


def is_sentence(text: str) -> bool:
    """Return whether a literal is a sentence of output rather than a label, a pattern or code."""
    words = text.split()
    plain = sum(bool(re.fullmatch(r"[\w'’%.,:;()–-]+", word)) for word in words)
    return len(words) >= WORDS["limits"]["sentence_least_words"] and plain >= 0.8 * len(words)


def offences(path: str) -> Iterator[Offence]:
    """Yield what a file breaks of the rules."""
    for piece in pieces(path):
        if piece.kind == "id":
            words = name_words(piece.text)
            fixed = piece.text in WORDS["allowed"]["identifiers"]
            if not fixed and (BANNED.search(words) or CONTEXT.search(words)):
                yield Offence("identifier", path, piece.line, piece.text)
            continue
        text = prose(piece.text)
        if piece.kind == "string":
            lines = re.split(r"\\n|\n", text)
            is_output = path.startswith(OUTPUT)
            text = "\n".join(
                line for line in lines if is_sentence(line) or (is_output and " " in line.strip())
            )
        for found in BANNED.finditer(text):
            yield Offence(
                "banned", path, piece.line, text[max(0, found.start() - 30) : found.end() + 30].strip()
            )
        for found in CONTEXT.finditer(IDIOMS.sub(" ", text)):
            yield Offence("context", path, piece.line, found.group())
        if piece.kind == "doc" and OPENING.match(piece.text.strip()):
            yield Offence("opening", path, piece.line, piece.text.strip()[:60])
        if piece.kind == "string" and path.startswith(OUTPUT):
            for sentence in re.split(r"(?<=[.;])\s", "\n".join(filter(is_sentence, lines))):
                if len(sentence.split()) > WORDS["limits"]["sentence_words"]:
                    yield Offence("sentence", path, piece.line, sentence[:60])


@cache
def found(prefixes: tuple[str, ...] = ("",)) -> tuple[Offence, ...]:
    """Return all offences of the files whose paths begin with one of the prefixes."""
    return tuple(offence for path in files() if path.startswith(prefixes) for offence in offences(path))


def of_rule(rule: str) -> list[str]:
    return [str(offence) for offence in found() if offence.rule == rule]


@pytest.mark.parametrize("rule", RULES)
def test_names_and_sentences_are_plain(rule: str):
    broken = of_rule(rule)
    assert broken == [], f"{len(broken)} offences: python tests/site/test_plain_words.py --list {rule}"


# --- pages


def hand_written() -> list[Path]:
    """Return the pages of docs/ that no command writes."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    return [page for page in pages if "generated" not in page.read_text()[:300].lower()]


def page_words() -> dict[str, int]:
    """Return the words of each hand-written page."""
    return {str(page.relative_to(ROOT)): len(page.read_text().split()) for page in hand_written()}


def orphans() -> list[str]:
    """Return pages that neither another page, nor the README, nor the site's navigation links."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    readers = [*pages, ROOT / "README.md", ROOT / "mkdocs.yml"]
    texts = {reader: reader.read_text() for reader in readers}
    return [
        str(page.relative_to(ROOT))
        for page in pages
        if page.name != "index.md"
        and not any(page.name in text for reader, text in texts.items() if reader != page)
    ]


def pages_broken() -> list[str]:
    """Return which limits of pages do not hold."""
    limits, words = WORDS["limits"], page_words()
    broken = [f"orphan: {page}" for page in orphans()]
    if len(words) > limits["pages"]:
        broken.append(f"{len(words)} hand-written pages, at most {limits['pages']}")
    if sum(words.values()) > limits["page_words"]:
        broken.append(f"{sum(words.values()):,} words, at most {limits['page_words']:,}")
    for name, most in (("README.md", limits["readme_lines"]), ("CHANGELOG.md", limits["changelog_lines"])):
        lines = len((ROOT / name).read_text().splitlines())
        if lines > most:
            broken.append(f"{name}: {lines} lines, at most {most}")
    return broken


def bound_names(source: str) -> set[str]:
    """Return the names of a module's variables and arguments."""
    nodes = list(ast.walk(ast.parse(source)))
    variables = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return variables | {node.arg for node in nodes if isinstance(node, ast.arg)}


def test_a_variable_is_named_for_what_it_is():
    refused = set(WORDS["variables"]["refused"])
    found = {
        str(path.relative_to(ROOT)): names
        for path in (ROOT / "python").rglob("*.py")
        if (names := bound_names(path.read_text()) & refused)
    }
    assert found == {}
    assert bound_names("def f(own): a = [b for b in own]") == {"own", "a", "b"}


def test_pages_are_few_short_and_linked():
    assert pages_broken() == []


def main() -> int:
    parser = argparse.ArgumentParser(description="list what is not plain")
    parser.add_argument("--list", choices=[*RULES, "pages"], help="print every offence of a rule")
    parser.add_argument("prefixes", nargs="*", metavar="PREFIX")
    asked = parser.parse_args()
    if asked.list == "pages":
        print("\n".join(pages_broken()))
    else:
        every = found(tuple(asked.prefixes) or ("",))
        print("\n".join(str(o) for o in every if asked.list in (None, o.rule)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
