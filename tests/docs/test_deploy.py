"""The files in `deploy` are what twinbus, systemd, container engines and Kubernetes read, as far as it shows here."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from doc_blocks import ROOT
from local_proxy import LocalProxy

from twinbus.cli.main import make_app
from twinbus.testing import LocalNamespace

DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "twinbus-proxy.service"
CONTAINER = DEPLOY / "container" / "Containerfile"
SIDECAR = DEPLOY / "kubernetes" / "sidecar.yaml"
KEPT = ("data", "ledger", "spool")
"""Options that name a folder which has to stay."""
PAIR = {"TWINBUS_PRIMARY", "TWINBUS_SECONDARY", "TWINBUS_KEY"}


def options_of(words: list[str]) -> dict[str, Any]:
    """The options of a command as twinbus reads them; runs nothing."""
    group: Any = typer.main.get_command(make_app())
    context = group.commands[words[0]].make_context(words[0], words[1:])
    return dict(context.params)


def unit() -> ConfigParser:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # systemd minds upper case
    parser.read(UNIT, encoding="utf-8")
    return parser


def test_the_unit_runs_a_proxy_that_keeps_its_data_and_finds_its_keys() -> None:
    service = unit()["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert program.endswith("/bin/twinbus")
    options = options_of(words)
    state = Path("/var/lib") / service["StateDirectory"]
    assert all(Path(options[name]).is_relative_to(state) for name in KEPT)
    environment = (DEPLOY / "systemd" / Path(service["EnvironmentFile"]).name).read_text(encoding="utf-8")
    assert set(re.findall(r"^(\w+)=\"", environment, re.MULTILINE)) == PAIR


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    here = tmp_path / UNIT.name
    program = str(Path(sys.executable).with_name("twinbus"))
    here.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/twinbus/bin/twinbus", program), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(here)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_container_is_made_of_files_that_are_here_and_runs_a_proxy() -> None:
    text = CONTAINER.read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE)
    assert [name for line in copied for name in line.split() if not (ROOT / name).exists()] == []
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(re.findall(r"/source\[(\w+)\]", text)) <= set(extras)
    first, words = (json.loads(found) for found in re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*\])$", text, re.MULTILINE))
    assert first == ["twinbus"]
    options = options_of(words)
    (volume,) = re.findall(r"^VOLUME (\S+)$", text, re.MULTILINE)
    assert all(Path(options[name]).is_relative_to(volume) for name in KEPT)
    ports = {options[name].rpartition(":")[2] for name in ("listen", "metrics")}
    assert set(re.findall(r"^EXPOSE (.*)$", text, re.MULTILINE)[0].split()) == ports


# --- Kubernetes ---


@pytest.fixture(scope="module")
def pod() -> dict[str, Any]:
    documents = list(yaml.safe_load_all(SIDECAR.read_text(encoding="utf-8")))
    (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
    found: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return found


def proxy_of(pod: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod["initContainers"]
    found: dict[str, Any] = container
    return found


def test_the_sidecar_runs_a_proxy_with_probes_that_it_answers(pod: dict[str, Any]) -> None:
    container = proxy_of(pod)
    assert container["restartPolicy"] == "Always", "else it is no sidecar, and the pod waits for its end"
    options = options_of(container["args"])
    (port,) = container["ports"]
    assert options["metrics"] == f"0.0.0.0:{port['containerPort']}", "probes come from outside of the pod"
    probes = [container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert [probe["path"] for probe in probes] == ["/healthz/live", "/healthz/live", "/healthz/ready"]
    assert {probe["port"] for probe in probes} == {port["name"]}
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert all(any(Path(options[name]).is_relative_to(each) for each in mounts) for name in KEPT)
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


def test_every_secret_that_the_sidecar_names_is_there(pod: dict[str, Any]) -> None:
    documents = list(yaml.safe_load_all(SIDECAR.read_text(encoding="utf-8")))
    (secret,) = [each for each in documents if each["kind"] == "Secret"]
    named = {each["name"]: each["valueFrom"]["secretKeyRef"] for each in proxy_of(pod)["env"]}
    assert set(named) == PAIR
    assert {each["name"] for each in named.values()} == {secret["metadata"]["name"]}
    assert {each["key"] for each in named.values()} == set(secret["stringData"])


@pytest.fixture
def proxy() -> Iterator[LocalProxy]:
    with (
        LocalNamespace("contoso", queues=["orders"]) as primary,
        LocalNamespace("backup") as secondary,
        LocalProxy(
            primary.connection_string, secondary.connection_string, key="the-key", backlog_queue_count=1
        ) as running,
    ):
        yield running


def test_the_connection_string_of_the_application_is_one_of_the_proxy(pod: dict[str, Any], proxy: LocalProxy) -> None:
    (container,) = pod["containers"]
    (value,) = [each["value"] for each in container["env"] if "value" in each]
    listens = options_of(proxy_of(pod)["args"])["listen"]
    string = value.replace("$(TWINBUS_KEY)", "the-key").replace(
        f"sb://{listens}", f"sb://127.0.0.1:{proxy.server.port}"
    )
    assert string != value
    with ServiceBusClient.from_connection_string(string) as client:
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("42"))
        with client.get_queue_receiver("orders") as receiver:
            assert [str(message) for message in receiver.receive_messages(max_wait_time=30)] == ["42"]
