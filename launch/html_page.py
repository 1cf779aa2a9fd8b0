"""Pages of HTML that a user opens: each is one file, which reads nothing else and runs nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

__all__ = ["html_page"]

_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
"""
"""Beginning of every page: its own styles are all that a browser takes, whatever a job's texts bring in."""


def html_page(
    package: str, name: str, finalize: Callable[[object], object] | None, /, **values: object
) -> str:
    """Return a page: what all pages begin with, then the template of that name in a package. Every value is
    shown as text, whatever is in it, as ``finalize`` returns it."""
    return _HEAD + _template(package, name, finalize).render(values)


@cache
def _template(package: str, name: str, finalize: Callable[[object], object] | None) -> Template:
    made = Environment(
        loader=PackageLoader(package, package_path=""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )
    return made.get_template(name)
