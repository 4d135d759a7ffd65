"""What the syphons inside a client are made of."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from twinbus.client.core.client_state import ClientState
from twinbus.client.core.own_spool import OwnSpool
from twinbus.client.core.own_syphon import OwnSyphon
from twinbus.client.namespace import Namespace
from twinbus.client.options import SendAvailabilityPairedNamespaceOptions

KEY = "SharedAccessKeyName=app;SharedAccessKey=a2V5"
PRIMARY = Namespace.from_connection_string(f"Endpoint=sb://contoso.servicebus.windows.net/;{KEY}")
SECONDARY = Namespace.from_connection_string(f"Endpoint=sb://backup.servicebus.windows.net/;{KEY}")


@pytest.mark.parametrize(("of_sends_s", "of_syphons_s"), [(0.1, 5.0), (5.0, 5.0), (60.0, 60.0)])
def test_syphons_take_their_time_however_short_the_attempts_of_sends_are(
    tmp_path: Path, of_sends_s: float, of_syphons_s: float
) -> None:
    options = SendAvailabilityPairedNamespaceOptions(
        SECONDARY, attempt_timeout=timedelta(seconds=of_sends_s), spool=tmp_path
    )
    state = ClientState(PRIMARY, options)
    syphon = OwnSyphon(state, lambda _alert: None, lambda _error: None).make([0])
    assert syphon.pump.options.attempt_s == of_syphons_s
    spool = OwnSpool(state, lambda _name, _text, *, details: None, lambda act: act())
    assert spool._routes.options.attempt_s == of_syphons_s
