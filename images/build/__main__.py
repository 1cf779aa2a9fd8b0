"""The Pulumi program of an image: read the configuration, build the image, export the outputs."""

import sys
from pathlib import Path

# Pulumi runs this folder by path, so the project's own folder is not on sys.path.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pulumi
from pulumi.runtime import get_config_env

from images.build.config import parse
from launch.errors import RankliftError

try:
    config = parse(get_config_env())
except RankliftError as error:
    raise pulumi.RunError(str(error)) from None  # shown without a traceback

from images.build.program import NodeImage

for _name, _value in NodeImage(pulumi.get_stack(), config).outputs.items():
    pulumi.export(_name, _value)
