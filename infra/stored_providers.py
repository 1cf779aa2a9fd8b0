"""The providers that a stack's state holds by name.

Pulumi runs a provider in a process of its own, in this folder and with nothing but this folder surely on the
path: it imports the file as ``stored_providers``. States name the file and its classes, so both names stay.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from infra.cluster.keys import KeyPairProvider
from infra.cluster.teardown_report import TeardownReportProvider

__all__ = ["KeyPairProvider", "TeardownReportProvider"]
