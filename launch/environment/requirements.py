"""pip's requirements files, read on this machine so that a head can do without it.

The head gives the text to uv. What uv would read from files is inlined here; what it does not honour in a
file is refused, as it would only print a warning. The format is pip's ("Requirements File Format"); uv's
documentation has its part of it ("Compatibility with pip").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from launch.access import Access, Scope, read_resolved
from launch.environment.environment_spec import Environment, ImageEnvironment, PythonEnvironment
from launch.errors import InputError, InputErrors
from launch.expressions import MARK

__all__ = [
    "Source",
    "parse_requirements",
    "read_requirements",
    "with_wheels",
    "without_password",
]

_LARGEST = 1 << 20
_DEEPEST = 50
_COMMENT = re.compile(r"(^|\s)#.*")
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
_OPTION = re.compile(r"(-[A-Za-z]|--[a-z-]+)(?:\s+|=)?(.*)", re.DOTALL)
_LONGEST = 4096
"""Characters of a requirement without its hashes: an address with a SAS has some hundred."""
_HASHES = re.compile(r"(?:\s+--hash=(?:md5|sha256|sha384|sha512|blake2b):[0-9a-fA-F]+)*")
"""Hashes of the kinds that uv verifies."""
_URL = re.compile(r"(https?|git\+https?|git\+ssh)://")
_WEB = ("https://", "http://")
_ELSEWHERE = re.compile(r"(?:git\+)?git@|(?!file:)[A-Za-z+]+://")
"""Begins an address of another kind, of git itself among them."""
_VAGUE = "Expected semicolon"
"""Begins what is said of a requirement that ends too late, which helps nobody."""
_LOCAL = re.compile(r"(file:|[./~]|\w[\w.-]*/)|[^:]*\.(whl|tar\.gz|zip)$")
_WHEEL_FILE = re.compile(r"(?:.*/)?([A-Za-z0-9_.]+)-([^-/]+)-[^/]*\.whl(?:[#?].*)?")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_WITH_EXTRAS = re.compile(rf"{_NAME.pattern}(?:\[[\w., -]*\])?")
_BEHIND = re.compile(r"\s(--?[A-Za-z][A-Za-z-]*)(?=[\s=]|$)")
_PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")
_ALIASES = {
    **{"-r": "--requirement", "-c": "--constraint", "-e": "--editable", "-f": "--find-links"},
    **{"-i": "--index-url", "--pypi-url": "--index-url"},
}
_KEPT = ("--index-url", "--extra-index-url", "--no-index", "--no-binary", "--only-binary", "--require-hashes")
"""Options that uv honours in a file."""
_WHEEL = (
    "build a wheel of it (`pip wheel`) and give its folder with --find-links, or leave it out if it is part "
    "of the pushed code"
)
_NOT_IN_UV = "uv, which installs the packages, does not honour it in a file"
_ADDRESSES = "write https://…, git+https://… or git+ssh://git@HOST/PATH, or build a wheel of it"
_REFUSED = {
    "--pre": (_NOT_IN_UV, "name the wanted version, e.g. torch==2.9.0rc1"),
    "--trusted-host": (
        _NOT_IN_UV,
        "serve the index over https with a certificate that the nodes know, and leave it out",
    ),
}
"""Options of pip that get a remedy of their own."""


@dataclass(frozen=True, slots=True)
class Source:
    """One logical line and where it stands."""

    where: str
    text: str
    scope: Scope
    """Where relative paths in it start, and what it may read."""


@dataclass(slots=True)
class _Found:
    included: set[tuple[Path, bool]] = field(default_factory=set)
    """Files that were read, and whether as constraints: files that include the next one twice would double
    with each level."""
    requirements: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)
    find_links: list[Path] = field(default_factory=list)
    errors: list[InputError] = field(default_factory=list)


def read_requirements(
    path: Path, access: Access | None = None, key: str = "--requirements", scope: Scope | None = None
) -> PythonEnvironment:
    """Return the environment of a requirements file, with the files that it includes.

    ``${NAME}`` is replaced as pip does, where ``access`` allows that variable; paths have to lie in the
    file's repository, which is ``scope``'s where another file has named it. Raise
    :class:`~launch.errors.InputError` with file and line; ``key`` named the file.
    """
    real = path
    if scope is None:
        scope, real = (access or Access()).typed(key, path)
    made = parse_requirements(_lines(path, real, key, scope.at(path.parent)))
    if not made.requirements:
        raise InputError(
            key, str(path), "has no requirement", "name a package on each line, e.g. torch==2.8.0"
        )
    return replace(made, title=path.name)


def parse_requirements(sources: Iterable[Source]) -> PythonEnvironment:
    """Return the environment of these lines. Raise :class:`~launch.errors.InputError` for wrong ones."""
    found = _Found()
    for source in sources:
        _read(source, found, found.requirements, ())
    if found.errors:
        raise found.errors[0] if len(found.errors) == 1 else InputErrors(found.errors)
    return PythonEnvironment(
        requirements="\n".join(found.requirements),
        constraints="\n".join(found.constraints),
        find_links=tuple(dict.fromkeys(found.find_links)),
    )


def with_wheels(
    environment: Environment | None, folders: Sequence[str], access: Access | None = None
) -> Environment | None:
    """Return the environment with these folders of wheels, of which ``--find-links`` gives each, if
    ``access`` admits them.

    Raise :class:`~launch.errors.InputError` for a path that is not a folder, and where nothing is installed.
    """
    if not folders:
        return environment
    paths = [Path(text).expanduser() for text in folders]
    for text, path in zip(folders, paths, strict=True):
        if not path.is_dir():
            raise InputError("--find-links", text, "is not a folder", "name one that holds wheels")
    paths = [(access or Access()).typed("--find-links", path)[1] for path in paths]
    if isinstance(environment, ImageEnvironment) and environment.python is not None:
        return replace(environment, python=_with_wheels(environment.python, paths))
    if isinstance(environment, PythonEnvironment):
        return _with_wheels(environment, paths)
    remedy = "give --requirements or --conda too"
    raise InputError("--find-links", folders[0], "has wheels, but nothing is to be installed", remedy)


def _with_wheels(environment: PythonEnvironment, paths: Sequence[Path]) -> PythonEnvironment:
    every = (*environment.find_links, *paths)
    return replace(environment, find_links=tuple(dict.fromkeys(every)))


def without_password(text: str) -> str:
    """Return the text without names and passwords in its addresses.

    >>> without_password("--index-url https://me:secret@pypi.example.com/simple")
    '--index-url https://***@pypi.example.com/simple'
    """
    return _PASSWORD.sub("***@", text)


def _lines(path: Path, real: Path, key: str, scope: Scope) -> Iterator[Source]:
    """Yield the logical lines of the file at ``path``, resolved ``real``, without comments."""
    try:
        data = read_resolved(real, _LARGEST + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise InputError(key, str(path), problem, "name a requirements file") from None
    except UnicodeDecodeError:
        raise InputError(key, str(path), "is not UTF-8", "save it as UTF-8") from None
    if len(data) > _LARGEST:
        raise InputError(key, str(path), f"is larger than {_LARGEST} bytes", "name a requirements file")
    whole, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        first = first or number
        if line.endswith("\\") and not _COMMENT.search(line):
            whole += line[:-1]
            continue
        whole = _COMMENT.sub("", whole + line).strip()
        if whole:
            yield Source(f"{path}, line {first}", whole, scope)
        whole, first = "", 0
    if whole.strip():
        yield Source(f"{path}, line {first}", whole.strip(), scope)


def _read(source: Source, found: _Found, into: list[str], above: tuple[Path, ...]) -> None:
    """Put a line into ``into``; ``above`` are the files that lead to it."""
    try:
        if MARK in source.text:
            remedy = "write ${NAME}, and give --fill NAME, which takes the value from your shell"
            raise _wrong(source, "has an expression, and none is replaced here", remedy)
        text = _VARIABLE.sub(lambda one: source.scope.access.fill(source.where, one[1]), source.text)
        option = _OPTION.fullmatch(text) if text.startswith("-") else None
        if option is None:
            into.append(_requirement(source, text))
        else:
            _option(
                source, _ALIASES.get(option[1], option[1]), option[2].strip().strip("'\""), found, into, above
            )
    except InputError as error:
        found.errors.append(error)


def _option(
    source: Source, name: str, value: str, found: _Found, into: list[str], above: tuple[Path, ...]
) -> None:
    if name in ("--requirement", "--constraint"):
        if _URL.match(value):
            raise _wrong(source, "is not on this machine", "download it, and give its path")
        path = _path(source, value)
        if path in above:
            raise _wrong(source, "includes itself", "remove one of the lines")
        if len(above) == _DEEPEST:
            raise _wrong(source, f"is included through more than {_DEEPEST} files", "put the files together")
        inner = found.constraints if name == "--constraint" else into
        if (path, inner is found.constraints) in found.included:
            return
        found.included.add((path, inner is found.constraints))
        for line in _lines(path, path, f"{source.where}: {name}", source.scope.at(path.parent)):
            _read(line, found, inner, (*above, path))
    elif name == "--find-links" and not _URL.match(value):
        folder = _path(source, value.removeprefix("file://"))
        if not folder.is_dir():
            raise _wrong(
                source, f"{folder} is not a folder", "give a folder of wheels, or the address of a page"
            )
        found.find_links.append(folder)
    elif name in (*_KEPT, "--find-links"):
        _check_value(source, name, value)
        found.requirements.append(f"{name} {value}".strip())
    elif name == "--editable":
        raise _wrong(source, *_not_editable(value, shows=_shows(source)))
    else:
        raise _wrong(source, *_REFUSED.get(name, (_NOT_IN_UV, "leave it out")))


def _check_value(source: Source, name: str, value: str) -> None:
    flag = name in ("--no-index", "--require-hashes")
    if bool(value) == flag:
        problem = "takes no value" if flag else "has no value"
        raise _wrong(source, problem, f"write it as {name}{'' if flag else ' VALUE'}")
    if name.endswith("index-url") and not value.startswith(_WEB):
        remedy = "give its https:// address; a folder of wheels is given with --find-links"
        raise _wrong(source, "is not the address of an index", remedy)


def _path(source: Source, written: str) -> Path:
    """Return the resolved path that a line names, if it may be read."""
    try:
        named = source.scope.named(written)
    except (OSError, RuntimeError, ValueError) as error:
        raise _wrong(source, f"names no path ({str(error).lower()})", "correct the path") from None
    return source.scope.admitted(source.where, named)


def _shows(source: Source) -> bool:
    """Return whether errors may show what became of a line: none of it is a variable's value."""
    return _VARIABLE.search(source.text) is None


def _not_editable(value: str, *, shows: bool) -> tuple[str, str]:
    """Return what is wrong with an editable requirement, and what to write."""
    if "://" not in value or value.removeprefix("git+").startswith("file:"):
        return "points at files of this machine", _WHEEL
    if not _URL.match(value):
        return "is not fetched by uv, which installs the packages", _ADDRESSES
    address, _, fragment = value.partition("#")
    parts = dict(part.partition("=")[::2] for part in fragment.split("&"))
    name, folder = parts.get("egg", ""), parts.get("subdirectory", "")
    written = f"{name} @ {address}" if _WITH_EXTRAS.fullmatch(name) else address
    shown = without_password(written + (f"#subdirectory={folder}" if folder else "")) if shows else "it"
    return "is editable, and nobody edits an environment of nodes", f"write {shown} without -e"


def _requirement(source: Source, text: str) -> str:
    """Return a requirement in its normal form, with its hashes, on one line."""
    behind = _BEHIND.search(text)
    if behind is not None and _ALIASES.get(behind[1], behind[1]) in (*_KEPT, "--find-links"):
        shown = without_password(text[behind.start() :].strip()) if _shows(source) else behind[1]
        problem = f"has {behind[1]} behind a requirement, and it is for all of them"
        raise _wrong(source, problem, f"write {shown} as a line of its own")
    need, dashes, rest = text.partition(" --")
    need = " ".join(need.split())
    if not _HASHES.fullmatch(f"{dashes and ' --'}{rest}".rstrip()):
        raise _wrong(
            source, "has an option that uv does not honour", "leave only --hash=sha256:… behind a requirement"
        )
    if _ELSEWHERE.match(need) and not _URL.match(need):
        raise _wrong(source, "is not an address that uv fetches", _ADDRESSES)
    if not _URL.match(need):
        need = _named(source, need)
    elif " " in need.partition(" ;")[0]:
        raise _wrong(source, "is not a requirement", "write a blank in an address as %20")
    return " ".join([need, *f"{dashes}{rest}".split()])


def _named(source: Source, need: str) -> str:
    """Return the normal form of a requirement by PEP 508, so that two spellings are one environment.

    Raise :class:`~launch.errors.InputError` for anything else, and for an address that a head cannot fetch.
    """
    name, at, address = (part.strip() for part in need.partition("@"))
    place = address if at and re.fullmatch(r"[\w.-]+(?:\[[^\]]*\])?", name) else need
    if _LOCAL.match(place):
        wheel = _WHEEL_FILE.fullmatch(place.partition(" ;")[0]) if _shows(source) else None
        remedy = wheel and f"write {wheel[1]}=={wheel[2]}, and give the folder of the wheel with --find-links"
        raise _wrong(source, "is a file of this machine", remedy or _WHEEL)
    if len(need) > _LONGEST:
        problem = f"has {len(need)} characters"
        raise _wrong(source, problem, f"write a requirement of at most {_LONGEST}")
    try:
        found = Requirement(need)
        for one in found.specifier:
            Version(one.version.removesuffix(".*"))  # uv wants one behind === too
    except (InvalidRequirement, InvalidVersion, RecursionError) as error:
        reason = without_password(str(error).partition("\n")[0])
        detail = (
            "" if reason.startswith(_VAGUE) or not _shows(source) else f" ({reason[:1].lower()}{reason[1:]})"
        )
        remedy = "write a name and versions, e.g. torch>=2.8,<3"
        raise _wrong(source, f"is not a requirement{detail}", remedy) from None
    if found.url is not None and not _URL.match(found.url):
        raise _wrong(source, "has an address that uv does not fetch", _ADDRESSES)
    found.name = canonicalize_name(found.name)
    return str(found)


def _wrong(source: Source, problem: str, remedy: str) -> InputError:
    return InputError(source.where, without_password(source.text), problem, remedy)
