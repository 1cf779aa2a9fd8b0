"""Templates of this package: a missing value is an error, filters quote values."""

from __future__ import annotations

import json
import shlex
from functools import cache, partial
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

__all__ = ["render"]


def render(name: str, **values: Any) -> str:
    """Return the text of the template ``name`` of this package.

    ``| json`` writes a value as JSON, which YAML and HCL read too; ``| quote`` as one word of a shell.
    Raises ``jinja2.UndefinedError`` for a value that the template names and nobody gives.
    """
    return _environment().get_template(name).render(**values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("images", package_path=""),
        autoescape=False,  # noqa: S701 - YAML, HCL and shell, no HTML; values pass the filters below
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        comment_start_string="{##",  # ${#array[@]} is bash
        comment_end_string="##}",
    )
    environment.filters["json"] = partial(json.dumps, ensure_ascii=False)
    environment.filters["quote"] = shlex.quote
    return environment
