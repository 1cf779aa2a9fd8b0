"""What a node lets Charliecloud do, without root or a daemon: pull an image, build one, run both."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

import pytest

from tests.rehearsal.node_lab import NETWORK, lab
from tests.rehearsal.registry import PASSWORD, USER, Registry, registry, tiny_layer

# Its cache of builds is a git repository, for which a node's user has no name.
SETTINGS = "export CH_IMAGE_CACHE=disabled REQUESTS_CA_BUNDLE=~/registry.crt"
LOGIN = f"export CH_IMAGE_USERNAME={USER} CH_IMAGE_PASSWORD={shlex.quote(PASSWORD)}"


@pytest.mark.parametrize("locked", [False, True])
def test_a_node_pulls_an_image_from_a_registry_builds_on_it_and_runs_both(
    tmp_path: Path, locked: bool
) -> None:
    async def story() -> None:
        with registry(tmp_path, locked=locked) as images:
            images.push("tools/tiny", "1", tiny_layer(**{"/etc/motd": "from the image\n"}))
            async with lab(tmp_path, 1) as it:
                await it.machines.set_outbound(NETWORK, ["10.0.0.0/16"])
                for number, (line, expected, message) in enumerate(steps(images)):
                    status, out = await it.ssh(0, line)
                    assert (status == 0) == expected, f"{number}: {out}"
                    assert message in out

    asyncio.run(story())


def steps(images: Registry) -> list[tuple[str, bool, str]]:
    """Return lines for a node, whether each succeeds, and what it prints."""
    image, trust = f"{images.address}/tools/tiny:1", shlex.quote(images.certificate.read_text())
    prepared = f"{SETTINGS}; {LOGIN}" if images.locked else SETTINGS
    auth = "--auth" if images.locked else ""
    dockerfile = f"FROM {image}\\nRUN cat /etc/motd >/made\\n"
    refused = "unauthorized" if images.locked else ""
    build = f"mkdir c; printf '{dockerfile}' >c/Dockerfile; ch-image {auth} build -t own c"
    return [
        (f"printf %s {trust} >~/registry.crt", True, ""),
        (f"{SETTINGS}; ch-image pull {image}", not images.locked, refused),
        (f"{prepared}; ch-image {auth} pull {image} && ch-convert {image} /tmp/tiny", True, "done"),
        ("ch-run /tmp/tiny -- /bin/cat /etc/motd", True, "from the image"),
        ("ch-run /tmp/tiny -- /bin/cat /proc/1/comm", True, "sh"),
        (f"{prepared}; {build} && ch-convert own /tmp/own", True, "done"),
        ("ch-run /tmp/own -- /bin/cat /made", True, "from the image"),
    ]
