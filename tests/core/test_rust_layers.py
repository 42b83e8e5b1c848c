"""Imports of the Rust core go down only: a package imports those before it in one order, and the files of a package,
and of the binding, form no circle."""

import re
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from support.rust_modules import CORE, RUST, FileImports, imports, module_of, sources, without_tests

#: The packages of the core, bottom to top. Each may import those before it.
ORDER = """
    convert names ids slab tiers error digest histogram key_map hosted parquet tokens trace keys
    records residual_grid step_time policies views store token_store causes batch engines replay
    transfers machine cluster
""".split()


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


def circle(files: FileImports) -> list[str]:
    """Return files of which each imports the one before it, the first again at the end; none if there is no circle."""
    try:
        TopologicalSorter(files.graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("crate", ["core", "py"])
def test_files_form_no_circle(crate):
    assert not circle(FileImports(RUST / crate / "src"))


def write(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


#: A circle of two files: one imports by a name that its package passes on, the other in its code alone.
CIRCLE = {
    "store/mod.rs": "mod low; mod high; pub use high::{deep::Far, High as Top};",
    "store/high.rs": "mod deep; pub struct High; fn f() { super::low::run() }",
    "store/high/deep.rs": "pub struct Far;",
    "store/low.rs": "use crate::store::{Far, Top}; pub fn run() {}",
}


def test_a_circle_of_files_is_seen_where_a_package_passes_names_on(tmp_path):
    write(tmp_path, CIRCLE)
    files = FileImports(tmp_path)
    assert files.graph["store/low"] == {"store/high", "store/high/deep"}
    assert sorted(set(circle(files))) == ["store/high", "store/low"]


def test_an_import_for_tests_alone_makes_no_circle(tmp_path):
    code = "mod deep; pub struct High; #[cfg(test)] mod tests { use crate::store::low::run; }"
    write(tmp_path, CIRCLE | {"store/high.rs": code})
    assert not circle(FileImports(tmp_path))


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
    write(tmp_path, texts)
    read = {path.relative_to(tmp_path).as_posix(): text for path, text in sources(tmp_path).items()}
    assert read == {name: text for name, text in texts.items() if not name.endswith("t.rs")}
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
