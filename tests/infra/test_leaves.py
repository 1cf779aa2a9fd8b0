"""Importing one resource of azure-native without all the others."""

import subprocess
import sys

CHECKS = {
    "loads the module asked for and not its neighbours": """
from pulumi_azure_native.network.subnet import Subnet
assert "pulumi_azure_native.network.vpn_gateway" not in sys.modules
""",
    "loads the rest when something else is asked for": """
import pulumi_azure_native.network as network
assert network.VpnGateway.__name__ == "VpnGateway"
assert not hasattr(network, "NoSuchResource")
""",
    "keeps one class for each resource": """
from pulumi_azure_native.network.subnet import Subnet
import pulumi_azure_native.network as network
assert network.Subnet is Subnet
""",
    "may be called again": """
leaves.install()
import pulumi_azure_native.compute as compute
assert compute.OrchestrationMode.UNIFORM.value == "Uniform"
leaves.install()
""",
}


def test_changes_nothing_but_the_time() -> None:
    for what, check in CHECKS.items():
        ran = subprocess.run(
            [sys.executable, "-c", f"import sys\nfrom infra import leaves\nleaves.install()\n{check}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert ran.returncode == 0, f"{what}: {ran.stderr}"
