"""Which package may import which, how long a module may be, and what it says it offers.

The arrows run one way: fabfile -> playbooks -> {launch, what infra decides and asks}; infra -> images. Inside
infra, what makes a cluster and what asks about it know its configuration, and nothing of each other. Inside
playbooks, the stack's tasks know of jobs, jobs' tasks of nodes, and nothing looks back.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import vermin

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("images", "infra", "launch", "playbooks")
FOR_ALL = {"launch.errors", "launch.nodeset", "launch.numbers"}
ARROWS: dict[str, set[str]] = {
    "fabfile": {"playbooks"},
    "playbooks": {
        "launch",
        "launch.remote",
        "playbooks.jobs",
        "playbooks.ssh",
        "playbooks.stack",
        "infra.arm.clients",
        "infra.inventory",
        "rehearsal",
        "infra.arm.update_errors",
    },
    "playbooks.stack": {
        "launch",
        "launch.remote",
        "playbooks",
        "playbooks.jobs",
        "playbooks.ssh",
        "infra.arm.clients",
        "infra.config",
        "infra.gate",
        "infra.inventory",
        "infra.preflight",
        "infra.naming",
        "infra.arm.errors",
        "infra.arm.rest",
        "infra.scale_plan",
        "infra.arm.pulumi_state",
        "infra.arm.subscription",
        "infra.arm.update_errors",
    },
    "playbooks.jobs": {"launch", "launch.remote", "playbooks", "playbooks.ssh", "infra.inventory"},
    "playbooks.ssh": {"launch", "playbooks.project", "infra.inventory"},
    "rehearsal": {"infra", "images"},
    "infra": {"images", "infra.cluster", "infra.config", "infra.preflight"},
    "infra.cluster": {
        "images",
        "infra.config",
        "infra.cluster.teardown_report",
        "infra.cluster.keys",
        "infra.naming",
    },
    "infra.preflight": {
        "images",
        "infra.config",
        "infra.naming",
        "infra.arm.errors",
        "infra.arm.rest",
        "infra.arm.pulumi_state",
    },
    "infra.config": {"images", "infra.naming", "catalogue.sizes"},
    "images": set(),
    "launch.remote": set(),
    "launch": {"launch.remote"},
}
"""Beside itself and ``FOR_ALL``, what a package may import: the longest name that fits a module counts, and a
name here does not stand for the rooms inside it."""
LONGEST = 400


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
        "def f():\n    from catalogue import sizes\n    import playbooks.ssh.fanout\n    import launch.errors\n"
    )
    assert forbidden(Module("launch.bad", bad)) == {"catalogue.sizes", "playbooks.ssh.fanout"}
    assert forbidden(Module("playbooks.bad", bad)) == {"catalogue.sizes"}
    bad.write_text(
        "from infra.cluster import network\nfrom infra.preflight.prices import Prices\nimport infra.naming\n"
    )
    assert forbidden(Module("infra.config.bad", bad)) == {"infra.cluster.network", "infra.preflight.prices"}
    assert forbidden(Module("infra.preflight.bad", bad)) == {"infra.cluster.network"}


@pytest.mark.parametrize("module", REMOTE, ids=names)
def test_what_runs_on_nodes_needs_the_standard_library_alone(module: Module) -> None:
    outside = {
        name
        for name in imports(module)
        if name.split(".")[0] not in sys.stdlib_module_names and not within(name, "launch.remote")
    }
    assert outside == set()


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
    return unions + [line for line in lines if re.search(r"\b3\.(9|\d\d)\b", line)]


def is_union(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return any(
                ast.unparse(side) in ("None", "int", "str", "bytes", "float") for side in (left, right)
            )
    return False


class WithoutAnnotations(ast.NodeTransformer):
    """Takes out what ``from __future__ import annotations`` leaves as text."""

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(value=None)
        return self.generic_visit(node)


def test_what_python_3_8_lacks_is_found() -> None:
    assert newer_than_3_8("import os\nprint(os.getpid())\ndef f(x: int | None) -> list[int]: ...\n") == []
    assert "removeprefix" in "".join(newer_than_3_8("print('ab'.removeprefix('a'))\n"))
    assert newer_than_3_8("Both = int | str\n") != []
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
