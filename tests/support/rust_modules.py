"""Reader of Rust sources: the modules of a crate, and what each file imports, by `use` and in its code."""

import re
from pathlib import Path

RUST = Path(__file__).resolve().parents[2] / "rust"
CORE = RUST / "core" / "src"

#: A module by the names that lead to it from the crate.
Module = tuple[str, ...]

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


def uses(code: str) -> dict[str, str]:
    """Return the paths that a file's `use` lines name, by the name that each gets there."""
    named = {}
    for tree in _USE.findall(code):
        for leaf in leaves(re.sub(r"\s+as\s+(\w+)", r"@\1", tree)):
            path, _, alias = leaf.partition("@")
            named[alias or path.split("::")[-1]] = path
    return named


class FileImports:
    """The files of a crate and those that each imports: a name that a module passes on counts for the file that
    defines it.

    `mod.rs` and `lib.rs` are no files here: they declare modules and pass names on.
    """

    def __init__(self, core: Path = CORE) -> None:
        self._files = {module_of(path, core): path for path in sources(core)}
        self._code = {module: without_tests(path.read_text()) for module, path in self._files.items()}
        self._uses = {
            module: {name: self._absolute(path, module) for name, path in uses(code).items()}
            for module, code in self._code.items()
        }
        self.graph = {
            self._name(module): {self._name(target) for target in self._imported(module)}
            for module, path in self._files.items()
            if path.name not in ("mod.rs", "lib.rs")
        }

    def _name(self, module: Module) -> str:
        return "/".join(module)

    def _absolute(self, path: str, module: Module) -> Module | None:
        """Return a path from the crate; none for one that leads out of it."""
        names = path.split("::")
        if names[0] not in ("crate", "super", "self"):
            return (*module, *names) if (*module, names[0]) in self._files else None
        here = () if names[0] == "crate" else module
        while names and names[0] in ("crate", "super", "self"):
            here = here[:-1] if names[0] == "super" else here
            names = names[1:]
        return (*here, *names)

    def _defining(self, path: Module) -> Module:
        """Return the module that defines the name at the end of a path."""
        passed = set()
        while path not in passed:
            passed.add(path)
            module = next(path[:end] for end in range(len(path), -1, -1) if path[:end] in self._files)
            if len(path) == len(module):
                return module
            onward = self._uses[module].get(path[len(module)])
            if onward is None:
                return module
            path = (*onward, *path[len(module) + 1 :])
        return module

    def _imported(self, module: Module) -> set[Module]:
        """Return the files other than itself that a file imports."""
        code = self._code[module]
        children = [m[-1] for m in self._files if m[:-1] == module]
        found = [self._absolute(path, module) for path in uses(code).values()]
        found += [(*module, child) for child in children if re.search(rf"(?<![:\w]){child}::", code)]
        found += imports(code, module)
        targets = {self._defining(path) for path in found if path is not None}
        return {m for m in targets - {module} if self._files[m].name not in ("mod.rs", "lib.rs")}
