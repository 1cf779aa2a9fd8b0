"""A recipe as cloud-init user data, as Image Builder's template and as Packer's: the same steps in each."""

import base64
import gzip
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import hcl2
import pytest
import yaml
from azure.mgmt.imagebuilder import models

from images.image_builders import packer_files
from images.os_images import MarketplaceImage
from images.recipe import Recipe, recipe_for
from images.steps import Step, steps
from images.user_data import LIMIT, user_data
from tests.images.image_template import Build, image_template

GOLDEN = Path(__file__).parent / "golden"
GROUP = "/subscriptions/s/resourceGroups/images"
BUILD = Build(
    base=MarketplaceImage("Canonical", "0001-com-ubuntu-server-jammy", "22_04-lts-gen2", "22.04.1"),
    location="southcentralus",
    identity_id=f"{GROUP}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/builder",
    image_version_id=f"{GROUP}/providers/Microsoft.Compute/galleries/g/images/node/versions/1.0.0",
    vm_size="Standard_D8s_v5",
    disk_gib=128,
    minutes=240,
    tags={"team": "vision"},
)
RECIPE = recipe_for("Standard_ND40rs_v2")
STEPS = steps(RECIPE)
BIGGEST = steps(recipe_for("Standard_ND96asr_v4", mpi="openmpi"))


def hcl(text: str) -> dict[str, Any]:
    parsed: dict[str, Any] = hcl2.loads(text)
    return parsed


def test_user_data_is_the_text_that_was_reviewed() -> None:
    text = re.sub(r'content: "H4sI[^"]*"', 'content: "(compressed)"', user_data(STEPS))
    assert text == (GOLDEN / "user_data.yaml").read_text("utf-8")


def test_the_template_is_the_one_that_was_reviewed() -> None:
    written = json.dumps(image_template(STEPS, BUILD), indent=2) + "\n"
    assert written == (GOLDEN / "image_template.json").read_text("utf-8")


def test_packers_template_is_the_one_that_was_reviewed() -> None:
    assert packer_files(RECIPE, STEPS)["node.pkr.hcl"] == (GOLDEN / "node.pkr.hcl").read_text("utf-8")


def from_user_data(found: tuple[Step, ...]) -> list[str]:
    files = yaml.safe_load(user_data(found))["write_files"]
    return [
        gzip.decompress(base64.b64decode(file["content"])).decode() for file in files if "encoding" in file
    ]


def from_image_builder(found: tuple[Step, ...]) -> list[str]:
    customize = image_template(found, BUILD)["properties"]["customize"]
    return ["\n".join(shell["inline"][1:-3]) + "\n" for shell in customize]


def from_packer(recipe: Recipe, found: tuple[Step, ...]) -> list[str]:
    files = packer_files(recipe, found)
    scripts = hcl(files["node.pkr.hcl"])["build"][0]["provisioner"][0]
    listed = next(iter(scripts.values()))["scripts"]
    return [files[name.strip('"')] for name in listed]


@pytest.mark.parametrize("size", ["Standard_ND40rs_v2", "Standard_ND128isr_GB300_v6", "Standard_HX176rs"])
def test_all_ways_run_the_same_steps_in_the_same_order(size: str) -> None:
    recipe = recipe_for(size)
    found = steps(recipe)
    scripts = [step.script for step in found]
    assert from_user_data(found) == scripts
    assert from_image_builder(found) == scripts
    assert from_packer(recipe, found) == scripts


def test_user_data_fits_into_what_azure_takes() -> None:
    assert len(user_data(BIGGEST).encode()) < LIMIT / 2


def test_user_data_satisfies_cloud_inits_own_schema(tmp_path: Path) -> None:
    (tmp_path / "user-data").write_text(user_data(BIGGEST))
    checked = subprocess.run(
        ["cloud-init", "schema", "-c", str(tmp_path / "user-data")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_step_that_fails_ends_the_first_boot_without_a_restart(tmp_path: Path) -> None:
    lines = {"10-a": "echo a ran", "20-b": "false", "30-c": "echo c ran"}
    found = [Step(name, name, f"#!/bin/bash\n{line}\n") for name, line in lines.items()]
    document = yaml.safe_load(user_data(found))
    for step in found:
        (tmp_path / step.file_name).write_text(step.script)
    run = document["write_files"][-1]["content"]
    for there in ("/var/log", "/run/ranklift", "/usr/local/lib/ranklift/recipe"):
        run = run.replace(there, str(tmp_path))
    ran = subprocess.run(["bash", "-c", run], check=False, timeout=60)
    log = (tmp_path / "ranklift-recipe.log").read_text()
    assert ran.returncode == 1
    assert "a ran" in log
    assert "20-b.sh failed" in log
    assert "c ran" not in log
    assert not (tmp_path / "recipe-done").exists()
    assert document["power_state"]["condition"] == "test -e /run/ranklift/recipe-done"


def accepted(model: Any, value: Any) -> None:
    """Walks Microsoft's models down and finds every key of ``value`` in them."""
    model({})  # its fields are looked at when the first one is made
    known = {field._rest_name for field in model._attr_to_rest_field.values()}
    assert set(value) <= known, f"{model.__name__} knows no {set(value) - known}"


def test_microsofts_models_know_every_part_of_the_template() -> None:
    body = {
        key: value for key, value in image_template(STEPS, BUILD).items() if key not in ("type", "apiVersion")
    }
    template = models.ImageTemplate(body)
    accepted(models.ImageTemplate, body)
    accepted(models.ImageTemplateProperties, body["properties"])
    accepted(models.ImageTemplateVmProfile, body["properties"]["vmProfile"])
    accepted(models.ImageTemplatePlatformImageSource, body["properties"]["source"])
    accepted(models.ImageTemplateIdentity, body["identity"])
    accepted(models.ImageTemplateAutoRun, body["properties"]["autoRun"])
    for shell in body["properties"]["customize"]:
        accepted(models.ImageTemplateShellCustomizer, shell)
    for way in body["properties"]["distribute"]:
        accepted(models.ImageTemplateSharedImageDistributor, way)
        for region in way["targetRegions"]:
            accepted(models.TargetRegion, region)
    assert template.properties is not None
    assert isinstance(template.properties.source, models.ImageTemplatePlatformImageSource)
    assert all(
        isinstance(one, models.ImageTemplateShellCustomizer) for one in template.properties.customize or []
    )
    assert template.properties.auto_run is not None
    assert template.properties.auto_run.state in {state.value for state in models.AutoRunState}


def test_a_base_with_a_purchase_plan_says_so() -> None:
    base = MarketplaceImage("almalinux", "almalinux-x86_64", "9-gen2", "9.1")
    build = Build(**{name: getattr(BUILD, name) for name in BUILD.__slots__} | {"base": base})
    plan = image_template(STEPS, build)["properties"]["source"]["planInfo"]
    accepted(models.PlatformImagePurchasePlan, plan)
    assert plan == {"planName": "9-gen2", "planProduct": "almalinux-x86_64", "planPublisher": "almalinux"}


def test_image_builders_shell_runs_a_step_whole(tmp_path: Path) -> None:
    script = "#!/bin/bash\nset -euo pipefail\ncat <<END\n$HOME `echo x` \\ \"'\nEND\ncat\necho after\n"
    inline = image_template([Step("10-odd", "odd", script)], BUILD)["properties"]["customize"][0]["inline"]
    text = "\n".join(inline).replace("sudo ", "").replace("/tmp/", f"{tmp_path}/")
    ran = subprocess.run(["sh", "-e", "-c", text], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.splitlines()[-1] == "after"
    assert list(tmp_path.iterdir()) == []


def test_packer_is_pinned_and_so_is_what_it_starts_from() -> None:
    parsed = hcl(packer_files(RECIPE, STEPS)["node.pkr.hcl"])
    settings = json.dumps(parsed["packer"])
    assert "= 2.6.1" in settings
    assert ">= 1.14.0" in settings
    variables = {next(iter(one)).strip('"'): next(iter(one.values())) for one in parsed["variable"]}
    assert "default" not in variables["base_version"]
    last = parsed["build"][0]["provisioner"][-1]
    assert "-deprovision+user" in json.dumps(last)


def test_packer_gives_arm_an_arm_machine() -> None:
    recipe = recipe_for("Standard_ND128isr_NDR_GB200_v6")
    text = packer_files(recipe, steps(recipe))["node.pkr.hcl"]
    assert '"server-arm64"' in text
    assert "Standard_D8ps_v5" in text
