"""In ``serving/`` and ``cache/`` an object is whole once it is built: its parts are given to its constructor.

What comes later, because two objects need each other, comes through a method of the object itself. Checked on
the source: no assignment to an attribute of anything but ``self``, save the fields of the records listed
here;
no parameter that is a tuple of several of the project's classes; at most six parameters a function.
"""

import ast
from pathlib import Path

import kvcache_sim
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cache.operations import Active
from kvcache_sim.serving.sequence import Arrival

PACKAGE = Path(kvcache_sim.__file__).parent
CAPACITIES = ("serving", "cache")
MOST_PARAMETERS = 6

#: Records of data: the class, its variable names, and the reason why others write to it.
RECORDS = [
    (Arrival, ("s", "sequence"), "a request in transit to a machine; a router notes its expectations"),
    (Active, ("active",), "state of a caller of manual operations, counted down by them"),
    (UsageError, ("error",), "completed by the caller that has a setting's position"),
]


def name_of(node: ast.expr) -> str:
    """Return the last name of what an attribute belongs to."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return name_of(node.value) if isinstance(node, ast.Subscript) else ""


def fields(record: type) -> set[str]:
    """Return the names of a record's fields."""
    listed = getattr(record, "__struct_fields__", getattr(record, "__slots__", ())) or ()
    return {*listed, *getattr(record, "__annotations__", ()), *(("where",) if record is UsageError else ())}


def is_field(node: ast.Attribute) -> bool:
    """Return whether an attribute is a field of a listed record."""
    owner = name_of(node.value)
    return any(owner in names and node.attr in fields(kind) for kind, names, _ in RECORDS)


def outside_assignments(tree: ast.AST, file: str) -> list[str]:
    """Return assignments to attributes of objects other than ``self`` that are no records."""
    found = []
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            for part in ast.walk(target):
                if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                    own = isinstance(part.value, ast.Name) and part.value.id == "self"
                    if not own and not is_field(part):
                        found.append(f"{file}:{part.lineno} {ast.unparse(part)}")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            found.append(f"{file}:{node.lineno} {ast.unparse(node)}")
    return found


def project_classes() -> set[str]:
    """Return the names of all classes of the package."""
    trees = (ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py"))
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def parameters(node: ast.FunctionDef) -> list[ast.arg]:
    """Return a function's parameters without ``self`` and ``cls``."""
    listed = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [one for one in listed if one.arg not in ("self", "cls")]


def mixed_tuples(tree: ast.AST, file: str, classes: set[str]) -> list[str]:
    """Return the parameters annotated as a tuple of more than one class of the project."""
    found = []
    for function in ast.walk(tree):
        for one in parameters(function) if isinstance(function, ast.FunctionDef) else ():
            for part in ast.walk(one.annotation) if one.annotation is not None else ():
                if not isinstance(part, ast.Subscript) or name_of(part.value) != "tuple":
                    continue
                used = {n.id for n in ast.walk(part.slice) if isinstance(n, ast.Name)} & classes
                if len(used) > 1:
                    found.append(f"{file}:{function.lineno} {one.arg}: {ast.unparse(part)}")
    return found


def long_lists(tree: ast.AST, file: str) -> list[str]:
    """Return the functions with more parameters than anyone keeps apart."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return [f"{file}:{one.lineno} {one.name}" for one in functions if len(parameters(one)) > MOST_PARAMETERS]


def sources() -> list[tuple[str, ast.AST]]:
    paths = sorted(path for capacity in CAPACITIES for path in (PACKAGE / capacity).rglob("*.py"))
    return [(path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text())) for path in paths]


def test_nothing_is_set_from_outside():
    assert [wrong for file, tree in sources() for wrong in outside_assignments(tree, file)] == []


def test_no_parameter_is_a_tuple_of_unrelated_objects():
    classes = project_classes()
    assert [wrong for file, tree in sources() for wrong in mixed_tuples(tree, file, classes)] == []


def test_no_function_takes_more_than_six_parameters():
    assert [wrong for file, tree in sources() for wrong in long_lists(tree, file)] == []


def test_the_checks_bite():
    planted = "mover.read_bytes += 1\nfor one in opened:\n    one.others = opened\ns.tiers = job.owner = 3"
    assert len(outside_assignments(ast.parse(planted), "planted.py")) == 4
    many = "def f(self, a, b, c, d, e, f, g: tuple[Machine, Cluster]): ..."
    assert len(mixed_tuples(ast.parse(many), "planted.py", project_classes())) == 1
    assert len(long_lists(ast.parse(many), "planted.py")) == 1
