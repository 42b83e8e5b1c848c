"""Imports of the Rust core go down only: a package imports those before it in one order, never those
after."""

import re
from collections import defaultdict
from pathlib import Path

CORE = Path(__file__).resolve().parents[2] / "rust" / "core" / "src"

#: The packages of the core, bottom to top. Each may import those before it.
ORDER = [
    "convert",
    "names",
    "ids",
    "slab",
    "tiers",
    "error",
    "digest",
    "histogram",
    "key_map",
    "parquet",
    "tokens",
    "trace",
    "keys",
    "records",
    "residual_grid",
    "step_time",
    "policies",
    "views",
    "store",
    "token_store",
    "causes",
    "batch",
    "engines",
    "replay",
    "transfers",
    "machine",
    "cluster",
]

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'b?"(?:\\.|[^"\\])*"', re.DOTALL)
_TEST_FILE = re.compile(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;")
_TEST_BLOCK = re.compile(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*\{")
_USE = re.compile(r"\buse\s+([^;]+);")
_PATH = re.compile(r"\b(?:crate|super|self)(?:\s*::\s*\w+)+")


def module_of(path: Path, core: Path = CORE) -> tuple[str, ...]:
    """Return the names that lead from the crate to a file's module; none for `lib.rs`."""
    parts = path.relative_to(core).with_suffix("").parts
    return parts[:-1] if parts[-1] in ("mod", "lib") else parts


def without_tests(source: str) -> str:
    """Return a file's code without its comments, strings and modules of tests."""
    code = _STRING.sub('""', _COMMENT.sub("", source))
    while block := _TEST_BLOCK.search(code):
        depth, end = 1, block.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            end += 1
        code = code[: block.start()] + code[end:]
    return code


def leaves(tree: str) -> list[str]:
    """Return the paths that a `use` names, its braces written out."""
    tree = re.sub(r"\s+as\s+\w+|\s+", "", tree)
    opening = tree.find("{")
    if opening < 0:
        return [tree]
    prefix, inner, depth, found = tree[:opening], tree[opening + 1 : tree.rindex("}")], 0, [""]
    for character in inner:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [prefix + leaf for part in found if part for leaf in leaves(part)]


def imports(source: str, module: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Return what a module names of the crate, by `use` and in its code, as paths from the crate."""
    code = without_tests(source)
    paths = [leaf for tree in _USE.findall(code) for leaf in leaves(tree)]
    paths += [re.sub(r"\s", "", path) for path in _PATH.findall(_USE.sub("", code))]
    found = set()
    for path in paths:
        names, here = path.split("::"), module
        if names[0] not in ("crate", "super", "self"):
            continue
        if names[0] == "crate":
            here = ()
        while names and names[0] in ("crate", "super", "self"):
            here = here[:-1] if names[0] == "super" else here
            names = names[1:]
        found.add((*here, *names))
    return found


def sources(core: Path = CORE) -> dict[Path, str]:
    """Return the files of the core without those of tests alone."""
    texts = {path: path.read_text() for path in sorted(core.rglob("*.rs"))}
    tests = set()
    for path, text in texts.items():
        tests |= {(*module_of(path, core), name) for name in _TEST_FILE.findall(text)}
    in_tests = {path for path in texts for end in range(9) if module_of(path, core)[:end] in tests}
    return {path: text for path, text in texts.items() if path not in in_tests}


def arrows(texts: dict[Path, str], core: Path = CORE) -> dict[tuple[str, str], set[str]]:
    """Return (package, imported package) with what is imported, each as `file: path`."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for path, text in texts.items():
        module = module_of(path, core)
        for target in imports(text, module):
            if module and target and target[0] != module[0]:
                found[module[0], target[0]].add(f"{path.relative_to(core)}: {'::'.join(target)}")
    return found


def upward(found: dict[tuple[str, str], set[str]]) -> list[str]:
    """Return the imports that do not go down, as lines to print."""
    height = {package: number for number, package in enumerate(ORDER)}
    wrong = [pair for pair in found if height[pair[1]] >= height[pair[0]]]
    return [
        f"{package} imports {target}: {what}" for package, target in wrong for what in found[package, target]
    ]


def foreign_methods(texts: dict[Path, str], core: Path = CORE) -> list[str]:
    """Return the types that get methods of their own in another package: an arrow up that no `use` shows."""
    declared, methods = defaultdict(set), []
    for path, text in texts.items():
        code, package = without_tests(text), module_of(path, core)[:1]
        for name in re.findall(r"\b(?:struct|enum)\s+(\w+)", code):
            declared[name] |= {package}
        heads = re.findall(r"^impl\b(?:<[^{;]*?>)?\s+([^{;]*)\{", code, re.MULTILINE)
        names = [re.match(r"(?:\w+::)*(\w+)", head) for head in heads if not re.search(r"\bfor\b", head)]
        methods += [(path, package, name.group(1)) for name in names if name]
    return [
        f"{path.relative_to(core)}: impl {name}"
        for path, package, name in methods
        if declared[name] and package not in declared[name]
    ]


def test_every_package_has_its_layer():
    assert {module_of(path)[0] for path in sources() if module_of(path)} == set(ORDER)


def test_imports_of_the_core_go_down_only():
    # In one order no two packages import each other, and no circle of files leaves its package.
    wrong = upward(arrows(sources()))
    assert not wrong, "\n".join(wrong)


def test_a_type_has_its_methods_in_its_own_package():
    wrong = foreign_methods(sources())
    assert not wrong, "\n".join(wrong)


def test_a_wrong_arrow_is_seen(tmp_path):
    texts = {
        "store/mod.rs": "use crate::{ids::NONE, machine::{self, messages::Task as T}};",
        "store/deep/low.rs": "fn f() { super::super::super::engines::new() } // crate::cluster::run",
        "store/quoted.rs": '#[cfg(test)]\nmod tests { use crate::machine::A; fn f() { "}" } }\n#[cfg(test)] mod t;',
        "store/quoted/t.rs": "use crate::cluster::Cluster;",
        "batch/mod.rs": "pub struct Batch;\nimpl<S: Store> Batch { }\nimpl Store for Batch { }",
        "machine/mod.rs": "use crate::batch::Batch;\nimpl<T> crate::batch::Batch<T> { fn f() {} }",
    }
    files = {}
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        files[path] = text
    assert sources(tmp_path) == {path: text for path, text in files.items() if path.name != "t.rs"}
    assert sorted(upward(arrows(sources(tmp_path), tmp_path))) == [
        "store imports engines: store/deep/low.rs: engines::new",
        "store imports machine: store/mod.rs: machine::messages::Task",
        "store imports machine: store/mod.rs: machine::self",
    ]
    assert foreign_methods(sources(tmp_path), tmp_path) == ["machine/mod.rs: impl Batch"]


def test_a_number_narrows_only_in_convert():
    """Clippy denies the casts in these packages; one file may allow them."""
    for package in ("store", "engines", "transfers", "machine", "cluster"):
        denied = re.search(r"deny\(([^)]*)\)", (CORE / package / "mod.rs").read_text())
        assert denied, package
        lints = {"truncation", "wrap", "sign_loss"}
        assert all(lint in denied[1] for lint in lints), package
    allowing = [path.name for path in CORE.rglob("*.rs") if "allow(clippy::cast" in path.read_text()]
    assert allowing == ["convert.rs"]
