"""The Pulumi program: configuration in, one cluster, outputs out."""

import gc
import os
import signal
import sys
from pathlib import Path

# Ctrl-C at a terminal comes here, too. Pulumi ends the update in good order; where the program was just then
# is of no interest, and Python would show it over a screen.
signal.signal(signal.SIGINT, lambda *_: os._exit(130))

# Pulumi puts this folder first on the path, where azure.py would hide Microsoft's package of that name;
# the project's own folder belongs there.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [str(_HERE.parent), *(entry for entry in sys.path if Path(entry or ".").resolve() != _HERE)]

import pulumi  # noqa: E402
from pulumi.runtime import get_config_env  # noqa: E402

from infra.arm.clients import endpoint, rehearsal_token  # noqa: E402
from infra.config.schema import parse  # noqa: E402
from infra.gate import pass_gate  # noqa: E402
from launch.errors import RankliftError  # noqa: E402

try:
    if endpoint(os.environ):  # another cloud is refused here too
        rehearsal_token(os.environ)  # and what is left in the shell of a rehearsal that has ended
    config = parse(get_config_env())
    if not pulumi.runtime.is_dry_run():
        pass_gate(os.environ)
except RankliftError as error:
    # Shown without a traceback: it says by itself what to mend.
    raise pulumi.RunError(str(error)) from None

# What follows is slow: a wrong configuration need not wait for it. It makes classes that all stay, which the
# collector would look through again and again: a third of the time (0.65 s with it, 0.43 s without).
gc.disable()
from infra.cluster.component import TrainingCluster  # noqa: E402

gc.freeze()
gc.enable()

for _name, _value in TrainingCluster(pulumi.get_stack(), config).outputs.items():
    pulumi.export(_name, _value)
