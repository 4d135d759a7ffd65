"""The order as a shell script of the Azure CLI."""

from __future__ import annotations

from textwrap import indent

from twinbus.board.queue import BOARD_SETTINGS
from twinbus.cli.provisioning.templates import ProvisioningRequest, ToolTemplate, fill, grants, settings_lines

NAMES = {
    "max_size_in_megabytes": "--max-size",
    "max_delivery_count": "--max-delivery-count",
    "default_message_time_to_live": "--default-message-time-to-live",
    "auto_delete_on_idle": "--auto-delete-on-idle",
    "lock_duration": "--lock-duration",
    "dead_lettering_on_message_expiration": "--enable-dead-lettering-on-message-expiration",
    "enable_batched_operations": "--enable-batched-operations",
    "requires_session": "--enable-session",
    "requires_duplicate_detection": "--enable-duplicate-detection",
    "enable_partitioning": "--enable-partitioning",
}

FORM = ToolTemplate("""\
#!/bin/sh
# Backlog queues %{first} to %{last}, for twinbus with create_backlog=False.
# Run it as often as you like:
#   PRIMARY_GROUP=GROUP SECONDARY_GROUP=GROUP sh backlog.sh
#
%{roles}
set -eu

PRIMARY=${PRIMARY:-%{primary}}
%{secondary}
: "${PRIMARY_GROUP:?the resource group of the primary}"
: "${SECONDARY_GROUP:?the resource group of the secondary}"
BACKLOG_QUEUE_COUNT=${BACKLOG_QUEUE_COUNT:-%{count}}
WITH_BOARD=${WITH_BOARD:-%{yes_board}}   # processes say there how they are doing: %{board}
WITH_KEYS=${WITH_KEYS:-yes}                      # authorization rules for sender, syphon and monitor
WITH_MANAGER_KEY=${WITH_MANAGER_KEY:-no}         # for applications that create the queues themselves
SENDER_PRINCIPAL_ID=${SENDER_PRINCIPAL_ID:-}     # object id of the identity of the sending applications
SYPHON_PRINCIPAL_ID=${SYPHON_PRINCIPAL_ID:-}     # object id of the identity of the syphon
MONITOR_PRINCIPAL_ID=${MONITOR_PRINCIPAL_ID:-}   # object id of the identity of the monitor

add_key() {  # GROUP NAMESPACE NAME RIGHT...
  group=$1 namespace=$2 name=$3
  shift 3
  az servicebus namespace authorization-rule create --resource-group "$group" --namespace-name "$namespace" \\
    --name "$name" --rights "$@" --output none
}

add_role() {  # PRINCIPAL ROLE SCOPE
  [ -n "$1" ] || return 0
  az role assignment create --assignee-object-id "$1" --assignee-principal-type ServicePrincipal \\
    --role "$2" --scope "$3" --output none
}

# In names of resources a tilde stands for the slash. The two longest times lack the last half second: the Azure CLI
# rounds it up to more than the service takes.
index=0
while [ "$index" -lt "$BACKLOG_QUEUE_COUNT" ]; do
  queue=$(az servicebus queue create --resource-group "$SECONDARY_GROUP" --namespace-name "$SECONDARY" \\
    --name "$PRIMARY~x-servicebus-transfer~$index" \\
%{settings} \\
    --query id --output tsv)
%{backlog_grants}
  index=$((index + 1))
done

if [ "$WITH_BOARD" = yes ]; then
  board=$(az servicebus queue create --resource-group "$SECONDARY_GROUP" --namespace-name "$SECONDARY" \\
    --name "$PRIMARY~x-twinbus-board" \\
%{board_settings} \\
    --query id --output tsv)
%{board_grants}
fi

if [ "$WITH_KEYS" = yes ]; then
  add_key "$PRIMARY_GROUP" "$PRIMARY" twinbus-sender Send
  add_key "$SECONDARY_GROUP" "$SECONDARY" twinbus-sender Send
  add_key "$PRIMARY_GROUP" "$PRIMARY" twinbus-syphon Send
  if [ "$WITH_BOARD" = yes ]; then
    add_key "$SECONDARY_GROUP" "$SECONDARY" twinbus-syphon Listen Send
  else
    add_key "$SECONDARY_GROUP" "$SECONDARY" twinbus-syphon Listen
  fi
  add_key "$PRIMARY_GROUP" "$PRIMARY" twinbus-monitor Listen
  add_key "$SECONDARY_GROUP" "$SECONDARY" twinbus-monitor Listen
fi
if [ "$WITH_MANAGER_KEY" = yes ]; then
  add_key "$SECONDARY_GROUP" "$SECONDARY" twinbus-manager Manage Send Listen
fi

# On the primary two send and one listens. Narrow the scope to the entities in question where that is wanted.
primary_id=$(az servicebus namespace show --resource-group "$PRIMARY_GROUP" --name "$PRIMARY" --query id --output tsv)
%{primary_grants}
""")


def _grant(place: str) -> ToolTemplate:
    return ToolTemplate(f'add_role "$%{{WHO}}_PRINCIPAL_ID" "Azure Service Bus Data %{{right}}" "${place}"')


def write(order: ProvisioningRequest) -> str:
    known = f"SECONDARY=${{SECONDARY:-{order.secondary}}}"
    settings = " \\\n".join(settings_lines(NAMES, "    {name} {value}", quote=""))
    return fill(
        FORM,
        order,
        "#",
        settings=settings.replace("5.4775807S", "5S"),
        board_settings=" \\\n".join(settings_lines(NAMES, "    {name} {value}", "", BOARD_SETTINGS)),
        secondary=': "${SECONDARY:?the name of the secondary namespace}"' if order.secondary is None else known,
        yes_board="yes" if order.has_board else "no",
        backlog_grants=indent(grants("backlog", _grant("queue")), "  "),
        board_grants=indent(grants("board", _grant("board")), "  "),
        primary_grants=grants("primary", _grant("primary_id")),
    )
