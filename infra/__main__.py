"""The Pulumi program: read the configuration, make the cluster, export the outputs."""

import gc
import os
import signal
import sys
from pathlib import Path

# Ctrl-C at a terminal reaches this process too. Pulumi ends the update in order; a traceback of the program
# would only cover its screen.
signal.signal(signal.SIGINT, lambda *_: os._exit(130))

# Pulumi runs this folder by path, so the project's own folder is not on sys.path.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pulumi  # noqa: E402
from pulumi.runtime import get_config_env  # noqa: E402

from infra.arm.clients import endpoint, rehearsal_token  # noqa: E402
from infra.config.replacing import refuse_rename, replacing_changes  # noqa: E402
from infra.config.schema import parse  # noqa: E402
from infra.former_outputs import former_outputs  # noqa: E402
from infra.gate import pass_gate  # noqa: E402
from launch.errors import RankliftError  # noqa: E402

try:
    if endpoint(os.environ):  # also refuses other clouds
        rehearsal_token(os.environ)  # also refuses variables of a rehearsal that has ended
    config = parse(get_config_env())
    if not pulumi.runtime.is_dry_run():
        pass_gate(os.environ)
except RankliftError as error:
    raise pulumi.RunError(str(error)) from None  # shown without a traceback

# Slow imports, so they come after the checks. They make classes that all stay, which the collector would scan
# again and again: a third of the time (0.65 s with it, 0.43 s without).
gc.disable()
from infra.cluster.component import TrainingCluster  # noqa: E402

gc.freeze()
gc.enable()

_former = former_outputs()
try:
    refuse_rename(_former, pulumi.get_stack())
except RankliftError as error:
    raise pulumi.RunError(str(error)) from None
_changed = replacing_changes(_former, config)
for _name, _value in TrainingCluster(pulumi.get_stack(), config, changed=_changed).outputs.items():
    pulumi.export(_name, _value)
