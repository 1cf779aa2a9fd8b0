"""The Pulumi program: configuration in, an image on its way, outputs out."""

import sys
from pathlib import Path

# Pulumi puts this folder first on the path; the project's own folder belongs there.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [str(_HERE.parents[1]), *(entry for entry in sys.path if Path(entry or ".").resolve() != _HERE)]

import pulumi  # noqa: E402
from pulumi.runtime import get_config_env  # noqa: E402

from images.build.config import parse  # noqa: E402
from launch.errors import RankliftError  # noqa: E402

try:
    config = parse(get_config_env())
except RankliftError as error:
    # Shown without a traceback: it says by itself what to mend.
    raise pulumi.RunError(str(error)) from None

from images.build.program import NodeImage  # noqa: E402  slow to import: a wrong configuration need not wait

for _name, _value in NodeImage(pulumi.get_stack(), config).outputs.items():
    pulumi.export(_name, _value)
