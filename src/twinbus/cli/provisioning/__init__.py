"""What an administrator must create for a pair that may not create it itself, in the language of his tool.

Nothing is contacted and nothing here is secret: names and numbers in, text out.
"""

from __future__ import annotations

from twinbus.cli.provisioning import azure_cli, bicep, terraform
from twinbus.cli.provisioning.templates import ProvisioningRequest
from twinbus.errors import OptionsError

TOOLS = {"bicep": bicep.write, "terraform": terraform.write, "cli": azure_cli.write}


def emit(tool: str, order: ProvisioningRequest) -> str:
    """The backlog queues (P1) and the four roles (S8) as a file for `bicep`, `terraform` or `cli`."""
    if tool not in TOOLS:
        raise OptionsError(f"--emit takes {', '.join(TOOLS)}, got {tool!r}")
    return TOOLS[tool](order)
