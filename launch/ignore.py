"""Which files a push leaves out: ``.gitignore`` and ``.ranklift-ignore``, at every level, as git reads them.

Both kinds of file hold the same rules and go through the same code. In one folder ``.ranklift-ignore`` has
the last word, so ``!weights.bin`` there pushes a file that ``.gitignore`` keeps out of the repository. Deeper
files win over higher ones, and nothing below an ignored folder is looked at. ``.git`` is always left out.

What git knows beside the files of the tree is not asked: a tracked file that a rule matches is left out, and
``.git/info/exclude`` or a user-wide ignore file change nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore import GitIgnorePatternError

from launch.errors import InputError

__all__ = ["IGNORE_FILES", "Rules"]

IGNORE_FILES = (".gitignore", ".ranklift-ignore")
"""In the order they are read: of two rules that match, the later one decides."""

_DIRECTORY = "(?P<ps_d>/)"
"""How pathspec marks, in its expressions, the slash that ends a matched directory."""


@dataclass(frozen=True, slots=True)
class _Rule:
    ignores: bool
    pattern: re.Pattern[str]
    directories_only: bool

    def matches(self, path: str, is_directory: bool) -> bool:
        """Whether the rule matches this very entry; a match of one of its parents does not count."""
        if not self.directories_only:
            return self.pattern.match(path) is not None
        return is_directory and self.pattern.match(path) is not None


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules in force in one folder of the tree.

    >>> top = Rules().within("", {".gitignore": b"*.bin\\n/out/\\n", ".ranklift-ignore": b"!small.bin\\n"})
    >>> [top.ignored(name, False) for name in ("big.bin", "small.bin", "out")], top.ignored("out", True)
    ([True, False, False], True)
    """

    levels: tuple[tuple[str, tuple[_Rule, ...]], ...] = ()
    """Folders with ignore files, outermost first, each path ending in a slash or empty, with their rules."""

    def within(self, folder: str, texts: dict[str, bytes]) -> Rules:
        """The rules below ``folder``, whose ignore files have these contents.

        Raises :class:`~launch.errors.InputError` for a rule that git would not understand either.
        """
        rules: list[_Rule] = []
        prefix = f"{folder}/" if folder else ""
        for name in IGNORE_FILES:
            if name in texts:
                rules += _read(prefix + name, texts[name])
        return Rules((*self.levels, (prefix, tuple(reversed(rules))))) if rules else self

    def ignored(self, path: str, is_directory: bool) -> bool:
        """Whether the entry at ``path`` (from the root, with slashes) is left out."""
        for prefix, rules in reversed(self.levels):
            below = path[len(prefix) :]
            for rule in rules:
                if rule.matches(below, is_directory):
                    return rule.ignores
        return False


def read_rules(rules: Rules, root: Path, folder: str, names: set[str]) -> Rules:
    """:meth:`Rules.within` for a folder on disk that holds ``names``."""
    texts = {name: (root / folder / name).read_bytes() for name in IGNORE_FILES if name in names}
    return rules.within(folder, texts) if texts else rules


def _read(name: str, text: bytes) -> list[_Rule]:
    rules = []
    for number, line in enumerate(text.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        shown = line.decode("utf-8", "surrogateescape")
        try:
            patterns = GitIgnoreSpec.from_lines([shown]).patterns
        except GitIgnorePatternError:
            raise InputError(
                f"{name}:{number}", shown, "this ignore rule is not valid", "mend or remove the line"
            ) from None
        for pattern in patterns:
            if pattern.include is not None and pattern.regex is not None:
                rules.append(_exact(pattern.include, pattern.regex.pattern))
    return rules


def _exact(ignores: bool, expression: str) -> _Rule:
    directories_only = expression.endswith(_DIRECTORY)
    if directories_only:
        expression = expression.removesuffix(_DIRECTORY) + r"\Z"
    elif expression.endswith(f"(?:{_DIRECTORY}|$)"):
        expression = expression.removesuffix(f"(?:{_DIRECTORY}|$)") + r"\Z"
    return _Rule(ignores, re.compile(expression, re.DOTALL), directories_only)
