"""The files that a push leaves out: ``.gitignore`` and ``.ranklift-ignore``, at every level, as in git.

Both kinds of file have the same syntax. In one folder ``.ranklift-ignore`` wins, so ``!weights.bin`` there
pushes a file that ``.gitignore`` keeps out of the repository. Deeper files win over higher ones, and nothing
below an ignored folder is read. ``.git`` is always left out, and so is ``.ranklift``, where the keys of the
nodes are.

Azure ML's ``.amlignore`` replaces the ``.gitignore`` beside it, as in Azure ML: a folder that was submitted
to Azure ML is pushed as the same files.

Of a folder inside a repository the files above it count as well, up to the repository's top, as in git; but
``.amlignore`` does not, which Azure ML reads in the folder alone (azure-ai-ml, ``get_ignore_file``). A rule
that names the folder itself, or one above, has no effect: the user wants this folder pushed.

What git knows beside the files of the tree is ignored: a tracked file that a rule matches is left out, and
``.git/info/exclude`` or a user-wide ignore file have no effect. What is left out by default
(:mod:`launch.code.left_out`) is pushed where a rule without wildcards names it, like ``!.venv``.

``pathspec`` is not used: its 1.1.1 differs from git in ``a**/*``, ``[[:alpha:]]``, ``[^x]`` and a slash,
``?`` and a letter beyond ASCII, and names with a line break, and took 1.5 times as long.
"""

from __future__ import annotations

import os
import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch.errors import InputError

__all__ = ["IGNORE_FILES", "Rules", "files_above", "read_rules", "rules_above"]

IGNORE_FILES = (".gitignore", ".amlignore", ".ranklift-ignore")
"""Names of ignore files in reading order: of two matching rules the later wins; ``.amlignore`` replaces the
``.gitignore`` of its folder."""


@dataclass(frozen=True, slots=True)
class _Rule:
    ignores: bool
    directories_only: bool
    anywhere: bool
    """Whether it matches the name at any depth, not the whole path from the ignore file's folder."""
    pattern: re.Pattern[str]
    is_literal: bool
    """Whether its last part has no wildcard."""

    def matches(self, path: str, is_directory: bool) -> bool:
        if self.directories_only and not is_directory:
            return False
        return self.pattern.fullmatch(path.rpartition("/")[2] if self.anywhere else path) is not None


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules in force in one folder of the tree.

    >>> top = Rules().within("", {".gitignore": b"*.bin\\n/out/\\n", ".ranklift-ignore": b"!small.bin\\n"})
    >>> [top.ignored(name, False) for name in ("big.bin", "small.bin", "out")], top.ignored("out", True)
    ([True, False, False], True)
    """

    levels: tuple[tuple[str, str, tuple[_Rule, ...]], ...] = ()
    """Folders with ignore files: the path from the root, the path to the root where they are above it, and
    their rules, the highest first; each path ends in a slash or is empty."""
    read: Counter[str] = field(default_factory=Counter, compare=False, repr=False)
    """Number of all rules read for the tree, in other folders too, and of characters ``compared``: of each
    path as often as there are rules."""

    def within(self, folder: str, texts: dict[str, bytes], to_root: str = "", at: str = ".") -> Rules:
        """Return the rules below ``folder``, whose ignore files contain ``texts``; below one above the root,
        from which ``to_root`` leads to it. ``at`` is the folder's path on disk.

        >>> above = Rules().within("", {".gitignore": b"/src/*.pt\\n*.env\\n"}, "src")
        >>> above.ignored("a.pt", False), above.ignored("deep/a.pt", False), above.ignored("deep/.env", False)
        (True, False, True)
        """
        rules: list[_Rule] = []
        prefix, down = (
            os.fsencode(f"{path}/" if path else "").decode("latin-1") for path in (folder, to_root)
        )
        for name in IGNORE_FILES:
            if name in texts and not (name == ".gitignore" and ".amlignore" in texts):
                found = _read(texts[name])
                self.read["rules"] += len(found)
                if self.read["rules"] > _MOST:
                    raise _too_much(f"{at}/{name}", f"brings the rules of all ignore files above {_MOST}")
                rules += found
        return Rules((*self.levels, (prefix, down, tuple(reversed(rules)))), self.read) if rules else self

    def ignored(self, path: str, is_directory: bool) -> bool:
        """Return whether the entry at ``path`` (from the root, with slashes) is left out."""
        return next((rule.ignores for rule in self._matching(path, is_directory)), False)

    def keeps(self, path: str) -> bool:
        """Return whether a rule keeps the folder at ``path`` by its name, as ``!.venv`` does.

        >>> rules = Rules().within("", {".ranklift-ignore": b"!/.venv\\n!*/\\n"})
        >>> rules.keeps(".venv"), rules.keeps("venv")
        (True, False)
        """
        decisive = (
            rule for rule in self._matching(path, is_directory=True) if rule.ignores or rule.is_literal
        )
        return next((not rule.ignores for rule in decisive), False)

    def _matching(self, path: str, is_directory: bool) -> Iterator[_Rule]:
        """Yield the rules that match the entry at ``path``, the one that wins first."""
        path = path if path.isascii() else os.fsencode(path).decode("latin-1")  # git compares bytes
        for prefix, down, rules in reversed(self.levels):
            below = down + path[len(prefix) :]
            self.read["compared"] += len(below) * len(rules)
            if self.read["compared"] > _MOST_COMPARED:
                raise _too_much(
                    path, f"brings what is compared with ignore files above {_MOST_COMPARED} characters"
                )
            for rule in rules:
                if rule.matches(below, is_directory):
                    yield rule


def read_rules(rules: Rules, root: Path, folder: str, names: set[str]) -> Rules:
    """Return :meth:`Rules.within` for a folder on disk that holds ``names``. Raise OSError, and
    :class:`~launch.errors.InputError` for a file that is too long, or has a rule too many."""
    texts = {name: _text(root / folder / name) for name in IGNORE_FILES if name in names}
    return rules.within(folder, texts, at=str(root / folder)) if texts else rules


def files_above(root: Path) -> tuple[Path, list[Path]]:
    """Return the top of the repository that ``root``, a resolved path, lies in (without one, ``root``), and
    the ignore files from there to above ``root``, the highest first."""
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)
    folders = [folder for folder in reversed(root.parents) if folder.is_relative_to(top)]
    names = [name for name in IGNORE_FILES if name != ".amlignore"]
    return top, [folder / name for folder in folders for name in names if (folder / name).is_file()]


def rules_above(root: Path, files: Sequence[Path]) -> Rules:
    """Return the rules of :func:`files_above`. Raise as :func:`read_rules`."""
    rules = Rules()
    for folder in dict.fromkeys(file.parent for file in files):
        texts = {file.name: _text(file) for file in files if file.parent == folder}
        rules = rules.within("", texts, str(root.relative_to(folder)), str(folder))
    return rules


def _text(path: Path) -> bytes:
    with path.open("rb") as file:
        text = file.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise _too_much(str(path), f"is larger than {_LARGEST >> 10} KiB")
    return text


def _too_much(path: str, problem: str) -> InputError:
    why = f"{problem}: each file would be compared with every line"
    return InputError("source", path, why, "name folders in it in place of files")


def _read(text: bytes) -> list[_Rule]:
    lines = text.removeprefix(b"\xef\xbb\xbf").decode("latin-1").split("\n")
    last = dict.fromkeys(reversed(lines))  # of equal lines the last decides
    return [rule for line in reversed(last) if (rule := _rule(line)) is not None]


def _rule(line: str) -> _Rule | None:
    if line.startswith("#"):
        return None
    line = line.removesuffix("\r")
    bare = line.rstrip(" ")
    line = f"{bare} " if bare.endswith("\\") and bare != line else bare
    negated = line.startswith("!")
    line = line[negated:]
    directories_only = line.endswith("/")
    line = line[: len(line) - directories_only]
    if not line:
        return None
    expression = _expression(line.removeprefix("/"))
    if expression is None:
        return None
    is_literal = not _WILDCARD.search(line.rpartition("/")[2])
    return _Rule(
        not negated, directories_only, "/" not in line, re.compile(expression, re.DOTALL), is_literal
    )


_CLASSES = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "blank": " \t",
    "digit": string.digits,
    "lower": string.ascii_lowercase,
    "punct": string.punctuation,
    "space": string.whitespace,
    "upper": string.ascii_uppercase,
    "xdigit": string.hexdigits,
}

_LARGEST = 256 << 10
"""Bytes of an ignore file."""
_MOST = 50_000
"""Rules of all ignore files of a tree."""
_MOST_COMPARED = 10**10
"""A million paths of 100 characters with 100 rules; a hostile pattern takes some minutes for as many."""
_MANY, _INSIDE = "[^/]*", ".*"
_LONGEST_PATH = 4096
"""Bytes of a path in Linux, its end included; a longer pattern matches none."""
_WILDCARD = re.compile(r"[*?\[]")
_PLAIN = re.compile(r"[^*?\[\\]*")
_TOKEN = re.compile(
    r"""(?P<below>(?:(?<=/)|\A)\*\*/)            # **/ : any folders, or none
      | (?P<inside>(?:(?<=/)|\A)\*\*\Z)          # /** : everything inside
      | (?P<many>\*+) | (?P<one>\?)
      | \[(?P<not>[!^]?)(?P<set>\]?+(?:\[:[a-z]+:\]|\\.|[^]\\])*+)\]
      | \\(?P<escaped>.) | (?P<plain>[^\\[])""",
    re.VERBOSE | re.DOTALL,
)


def _expression(pattern: str) -> str | None:
    """Return a pattern's regular expression; ``None`` when no path can match it (an open bracket, say).

    Matching takes no longer than the product of path and pattern. Parts of a name between two stars, and
    folders between two ``**/``, are matched where they first occur, in atomic groups: a later place leaves
    less of the path for the rest, so that going back never helps.
    """
    plain = _PLAIN.match(pattern)
    assert plain is not None  # noqa: S101 - it matches nothing, too
    # git compares up to the first wildcard literally, then the rest as a pattern: a**/b is a and **/b.
    blocks, position, pattern = [[re.escape(plain[0])]], 0, pattern[plain.end() :]
    length = plain.end()
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None:
            return None
        position = token.end()
        if token["below"]:
            if len(blocks) == 1 or blocks[-1]:  # **/**/ is **/
                blocks.append([])
            continue
        part = _part(token)
        length += part not in (_MANY, _INSIDE)
        if length > _LONGEST_PATH:
            return None
        blocks[-1].append(part)
    return "".join(
        _block(parts)
        if not number
        else f"(?>(?:.*?/)??{_block(parts)})"
        if number < len(blocks) - 1
        else f"(?:.*/)?{_block(parts)}"
        for number, parts in enumerate(blocks)
    )


def _part(token: re.Match[str]) -> str:
    if token["inside"]:
        return _INSIDE
    if token["many"]:
        return _MANY
    if token["one"]:
        return "[^/]"
    if token["set"] is not None:
        return _one_of(token["set"], bool(token["not"]))
    return re.escape(token["escaped"] or token["plain"])


def _block(parts: Sequence[str]) -> str:
    """Return the expression of what stands between two ``**/``: all but the last star of a name match as
    little as they can, once and for all."""
    made: list[str] = []
    star = None
    for part in parts:
        if part == _MANY and star is not None:
            made[star] = "(?>[^/]*?"
            made.append(")")
        if part == _MANY:
            star = len(made)
        elif part == "/":
            star = None
        made.append(part)
    return "".join(made)


_MEMBER = re.compile(
    r"""\[:(?P<name>[a-z]+):\]
      | (?:\\(?P<low_escaped>.)|(?P<low>.))-(?:\\(?P<high_escaped>.)|(?P<high>.))
      | \\(?P<escaped>.) | (?P<plain>.)""",
    re.VERBOSE | re.DOTALL,
)


def _one_of(text: str, negated: bool) -> str:
    members: set[str] = set()
    for member in _MEMBER.finditer(text):
        if member["name"]:
            members.update(_CLASSES.get(member["name"], ""))
        elif low := member["low_escaped"] or member["low"]:
            high = member["high_escaped"] or member["high"]
            members.update(map(chr, range(ord(low), ord(high) + 1)))
        else:
            members.add(member["escaped"] or member["plain"])
    if negated:
        members = set(map(chr, range(256))) - members
    members.discard("/")
    return f"[{_ranges(sorted(map(ord, members)))}]" if members else "(?!)"


def _ranges(codes: Sequence[int]) -> str:
    """Return the members of a set as ranges: with each of them, many sets would take seconds to compile.

    >>> _ranges([97, 98, 99, 120])
    'a-cx-x'
    """
    starts = [code for code, before in zip(codes, [-2, *codes], strict=False) if code != before + 1]
    ends = [code for code, after in zip(codes, [*codes[1:], -1], strict=True) if code + 1 != after]
    return "".join(
        f"{re.escape(chr(low))}-{re.escape(chr(high))}" for low, high in zip(starts, ends, strict=True)
    )
