"""`make azure-live`: says what it is going to do to two namespaces and what that costs, and does it if you say yes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from twinbus import Namespace
from twinbus.errors import TwinbusError

PRIMARY, SECONDARY, CONSENT = "TWINBUS_LIVE_PRIMARY", "TWINBUS_LIVE_SECONDARY", "TWINBUS_LIVE_YES"

OPERATIONS = 2_100
"""Generously: 21 tests with fewer than 100 messages, pings, link openings and administration calls each."""
USD_PER_MILLION = 0.80
"""Standard tier beyond the 13 million operations a month that its base fee includes; USD, US region."""
PRICES_OF = "public list prices as of September 2026"


def main() -> None:
    missing = [name for name in (PRIMARY, SECONDARY) if not os.environ.get(name)]
    if missing:
        sys.exit(
            f"azure-live: set {' and '.join(missing)} to the connection string of a namespace, with Manage rights "
            "(Standard tier or higher; two different namespaces)"
        )
    primary, secondary = (_named(name) for name in (PRIMARY, SECONDARY))
    sys.stdout.write(_plan(primary, secondary))
    sys.stdout.flush()
    if os.environ.get("YES") != "1" and not _agrees():
        sys.exit("azure-live: nothing was done")
    tests = Path(__file__).parent
    everything = ("-m", "long or not long")  # otherwise a sample: tests with both clients would run with one
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", "-s", *everything, str(tests)]
    sys.exit(subprocess.run(command, env={**os.environ, CONSENT: "1"}, check=False).returncode)


def _named(variable: str) -> Namespace:
    try:
        return Namespace.from_connection_string(os.environ[variable])
    except TwinbusError as error:
        sys.exit(f"azure-live: {variable}: {error}")


def _plan(primary: Namespace, secondary: Namespace) -> str:
    cost = OPERATIONS / 1e6 * USD_PER_MILLION
    return (
        f"azure-live: primary {primary.address}, secondary {secondary.address}\n"
        "  makes queues twinbus-live-* in the primary and backlog queues twinbus-live-*/... in the secondary,\n"
        "  sends a few hundred small messages, sets one of these queues to SendDisabled and back, and deletes\n"
        "  them. Nothing else in the namespaces is touched. Takes minutes.\n"
        f"  Costs at most {OPERATIONS:,} operations, ${cost:.4f} at ${USD_PER_MILLION:.2f} a million ({PRICES_OF}),\n"
        "  or nothing within the 13 million a month that the Standard tier includes. The namespaces are not made\n"
        "  here: their base fee ($9.81 a month for all of a subscription, Standard) is yours already.\n"
    )


def _agrees() -> bool:
    if not sys.stdin.isatty():
        sys.stderr.write("azure-live: say YES=1 to go on\n")
        return False
    return input("Go on? [y/N] ").strip().lower() in ("y", "yes")


if __name__ == "__main__":
    main()
