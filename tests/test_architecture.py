"""Which room may import which, how large rooms and modules may be, and what a module says it offers.

The arrows run one way: fabfile -> playbooks -> {launch, infra, rehearsal}; infra -> images -> catalogue; the
rehearsal knows nothing of who uses it. Inside playbooks, the stack's tasks know of jobs, jobs' tasks of
nodes, and nothing looks back. On nodes, everything knows ``base``, and ranks start with ``node`` and ``base``
alone.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import vermin

from tests.arrows import ARROWS, FOR_ALL

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("catalogue", "images", "infra", "launch", "playbooks", "rehearsal")
_OWN_PYTHON = {
    "launch.remote.environment.conda.rattler_install": "rattler",
    "launch.remote.probe.torch_program": "torch",
}
"""Programs for a Python of their own, and the one package that it has beside the standard library."""
LONGEST, LARGEST = 400, 16
"""Lines of a module, modules of a room."""


@dataclass(frozen=True, slots=True)
class Module:
    """A source file and its dotted name."""

    name: str
    path: Path

    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(), str(self.path))


def modules(*packages: str) -> list[Module]:
    found = []
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found.append(Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


PROJECT = [*modules(*PACKAGES), Module("fabfile", ROOT / "fabfile.py")]
REMOTE = modules("launch/remote")
EVERYTHING = [*PROJECT, *modules("tests", "tools", "bench", "examples")]


def names(module: Module) -> str:
    return module.name


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def imports(module: Module) -> Iterator[str]:
    """Every module imported anywhere in the file, functions included."""
    parts = module.name.split(".")
    package = parts if module.path.name == "__init__.py" else parts[:-1]
    for node in ast.walk(module.tree()):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{source}.{alias.name}"
                yield full if is_module(full) else source


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def layer_of(name: str) -> str:
    return max((layer for layer in ARROWS if within(name, layer)), key=len)


def forbidden(module: Module) -> set[str]:
    layer = layer_of(module.name)
    allowed = ARROWS[layer] | FOR_ALL
    ours = {name for name in imports(module) if name.split(".")[0] in (*PACKAGES, "fabfile")}
    return {
        name
        for name in ours
        if (own := layer_of(name)) != layer
        and not any(within(name, target) and within(target, own) for target in allowed)
    }


@pytest.mark.parametrize("module", PROJECT, ids=names)
def test_imports_follow_the_arrows(module: Module) -> None:
    assert forbidden(module) == set()


def test_the_arrows_can_be_broken(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(
        "from catalogue import sizes\ndef f():\n    import playbooks.ssh.fanout\n    import launch.errors\n"
    )
    assert forbidden(Module("launch.bad", bad)) == {"catalogue.sizes", "playbooks.ssh.fanout"}
    assert forbidden(Module("playbooks.bad", bad)) == {"catalogue.sizes", "playbooks.ssh.fanout"}
    bad.write_text(
        "from infra.cluster import network\nfrom infra.preflight.prices import Prices\nimport infra.naming\n"
    )
    assert forbidden(Module("infra.config.bad", bad)) == {"infra.cluster.network", "infra.preflight.prices"}
    assert forbidden(Module("infra.preflight.bad", bad)) == {"infra.cluster.network"}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The sets of modules that import each other, directly or by way of others, sorted by name."""
    sorter = TopologicalSorter(graph)
    try:
        sorter.prepare()
    except CycleError as error:
        found = sorted(set(error.args[1]))
        return [found, *circles({name: of - {*found} for name, of in graph.items() if name not in found})]
    return []


def import_graph(project: list[Module]) -> dict[str, set[str]]:
    known = {module.name for module in project}
    return {module.name: {*imports(module)} & known - {module.name} for module in project}


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert circles(import_graph(PROJECT)) == []


def test_a_circle_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n    from launch import b\n")
    (tmp_path / "b.py").write_text("import launch.c\n")
    (tmp_path / "c.py").write_text("from launch.a import f\n")
    bad = [Module(f"launch.{name}", tmp_path / f"{name}.py") for name in "abc"]
    graph = {"launch.a": {"launch.b"}, "launch.b": {"launch.c"}, "launch.c": {"launch.a"}}
    assert circles(graph | {"launch.d": {"launch.a"}}) == [["launch.a", "launch.b", "launch.c"]]
    assert import_graph(bad)["launch.b"] == {"launch.c"}


def rooms() -> dict[Path, list[str]]:
    found: dict[Path, list[str]] = {}
    for module in modules(*PACKAGES):
        found.setdefault(module.path.parent, [])
        if module.path.stem not in ("__init__", "__main__"):
            found[module.path.parent].append(module.path.stem)
    return found


@pytest.mark.parametrize("room", rooms(), ids=lambda room: str(room.relative_to(ROOT)))
def test_a_room_can_be_overlooked(room: Path) -> None:
    assert len(rooms()[room]) <= LARGEST


@pytest.mark.parametrize("package", [*PACKAGES, "launch/remote"])
def test_a_name_stands_for_one_module_of_a_package(package: str) -> None:
    inner = ROOT / "launch/remote"
    top = ROOT / package
    stems = [
        stem
        for room, there in rooms().items()
        if room.is_relative_to(top) and (top == inner or not room.is_relative_to(inner))
        for stem in there
    ]
    assert [stem for stem, count in Counter(stems).items() if count > 1] == []


@pytest.mark.parametrize("module", REMOTE, ids=names)
def test_what_runs_on_nodes_needs_the_standard_library_alone(module: Module) -> None:
    allowed = {*sys.stdlib_module_names, _OWN_PYTHON.get(module.name)}
    found = {name for name in imports(module) if not within(name, "launch.remote")}
    assert {name for name in found if name.split(".")[0] not in allowed} == set()


@pytest.mark.parametrize("module", REMOTE, ids=names)
def test_what_runs_on_nodes_runs_under_python_3_8(module: Module) -> None:
    source = module.path.read_text()
    ast.parse(source, str(module.path), feature_version=(3, 8))
    assert newer_than_3_8(source) == []


def newer_than_3_8(source: str) -> list[str]:
    """What the source uses at run time that Python 3.8 has not; annotations are not run."""
    tree = WithoutAnnotations().visit(ast.parse(source))
    config = vermin.Config()
    config.set_verbose(3)
    lines = vermin.visit(ast.unparse(tree), config=config).output_text().splitlines()
    unions = [ast.unparse(node) for node in ast.walk(tree) if is_union(node)]
    return unions + generics(tree) + [line for line in lines if re.search(r"\b3\.(9|\d\d)\b", line)]


def is_union(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return any(
                ast.unparse(side) in ("None", "int", "str", "bytes", "float") for side in (left, right)
            )
    return False


def generics(tree: ast.AST) -> list[str]:
    """What is subscripted as only Python 3.9 can: built-in types and those of collections.abc."""
    found = {"dict", "frozenset", "list", "set", "tuple", "type"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "collections.abc":
            found.update(alias.asname or alias.name for alias in node.names)
    subscripted = (node for node in ast.walk(tree) if isinstance(node, ast.Subscript))
    return [ast.unparse(node) for node in subscripted if ast.unparse(node.value) in found]


class WithoutAnnotations(ast.NodeTransformer):
    """Takes out what ``from __future__ import annotations`` makes text, and what only type checkers run."""

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(value=None)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
        return self.generic_visit(node)


def test_what_python_3_8_lacks_is_found() -> None:
    assert newer_than_3_8("import os\nprint(os.getpid())\ndef f(x: int | None) -> list[int]: ...\n") == []
    assert "removeprefix" in "".join(newer_than_3_8("print('ab'.removeprefix('a'))\n"))
    assert newer_than_3_8("Both = int | str\n") != []
    assert newer_than_3_8("Names = list[str]\n") != []
    assert newer_than_3_8("from collections.abc import Callable\nReport = Callable[[int], object]\n") != []
    assert newer_than_3_8("from typing import Callable\nReport = Callable[[int], object]\n") == []
    assert newer_than_3_8("from dataclasses import dataclass\n@dataclass(slots=True)\nclass A: ...\n") != []


@pytest.mark.parametrize("module", EVERYTHING, ids=names)
def test_a_module_can_be_read_in_one_sitting(module: Module) -> None:
    assert len(module.path.read_text().splitlines()) <= LONGEST


@pytest.mark.parametrize("module", PROJECT, ids=names)
def test_a_module_offers_exactly_its_public_names(module: Module) -> None:
    body = module.tree().body
    defined = {name for node in body for name in bound(node)}
    own = {n.name for n in body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    public = {name for name in own if not name.startswith("_")}
    offered = offers(body)
    if offered is None:
        assert public == set() or module.path.name == "__main__.py", "it has no __all__"
        return
    assert set(offered) - defined == set(), "offered, but not there"
    assert public - set(offered) == set(), "public, but not offered"


def offers(body: list[ast.stmt]) -> list[str] | None:
    for node in body:
        if isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == ["__all__"]:
            return [str(name) for name in ast.literal_eval(node.value)]
    return None


def bound(node: ast.stmt) -> Iterator[str]:
    """Names that a statement at module level gives a value."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            yield from (alias.asname or alias.name.split(".")[0] for alias in aliases)
        case ast.Assign(targets=targets):
            for target in targets:
                yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.If(body=body, orelse=orelse) | ast.Try(body=body, orelse=orelse):
            for inner in (*body, *orelse):
                yield from bound(inner)
