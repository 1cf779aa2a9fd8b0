"""docs/images.md says what the data say."""

import json
import re
from pathlib import Path
from typing import Any

from images.os_images import default_image
from images.recipe import recipe_for
from images.steps import steps
from tests.images.contents import contents

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/images.md").read_text("utf-8")


def rows(heading: str) -> list[list[str]]:
    part = TEXT.split(heading, 1)[1].split("\n#", 1)[0]
    found = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in found[2:]]


def fetched() -> list[list[str]]:
    versions: dict[str, dict[str, Any]] = json.loads((ROOT / "images/versions.json").read_text())
    found = []
    for name, component in versions.items():
        files = component.get("files", {"": component} if "url" in component else {})
        for platform, file in files.items():
            version = (component | file).get("version") or file["url"].split("/")[5][:8]
            digest = "pinned" if file.get("sha256") else "unknown"
            found.append([f"{name} {platform}".strip(), version, digest])
    return found


def test_every_file_is_listed_with_whether_its_digest_is_known() -> None:
    assert rows("### What is fetched") == fetched()


def test_every_step_is_listed() -> None:
    known = [step.name for step in steps(recipe_for("Standard_ND96isr_H100_v5"))]
    assert [row[0] for row in rows("## A recipe")] == known


def test_every_default_image_is_listed_with_what_it_holds() -> None:
    for rule, urn, holds in rows("## What the sizes boot"):
        image = default_image(rule.strip("`"))
        assert urn.strip("`") == image.urn
        held = contents(image)
        if held is not None:
            for part in ("ofed", "driver", "cuda", "nccl", "hpcx", "openmpi", "intel_mpi"):
                assert re.search(rf"{re.escape(held[part])}\b", holds), (rule, part)
