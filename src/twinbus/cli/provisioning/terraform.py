"""The order in Terraform's language, for the provider azurerm 4 and later."""

from __future__ import annotations

from collections.abc import Mapping

from twinbus.board.queue import BOARD_SETTINGS
from twinbus.cli.provisioning.templates import ProvisioningRequest, ToolTemplate, fill, grants, settings_lines
from twinbus.pairing.backlog.backlog_queues import BACKLOG_SETTINGS

NAMES = {
    "max_size_in_megabytes": "max_size_in_megabytes",
    "max_delivery_count": "max_delivery_count",
    "default_message_time_to_live": "default_message_ttl",
    "auto_delete_on_idle": "auto_delete_on_idle",
    "lock_duration": "lock_duration",
    "dead_lettering_on_message_expiration": "dead_lettering_on_message_expiration",
    "enable_batched_operations": "batched_operations_enabled",
    "requires_session": "requires_session",
    "requires_duplicate_detection": "requires_duplicate_detection",
    "enable_partitioning": "partitioning_enabled",
}

FORM = ToolTemplate("""\
# Backlog queues %{first} to %{last}, for twinbus with create_backlog=False.
#
%{roles}

terraform {
  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = ">= 4.0"
    }
  }
}

variable "primary_name" {
  type    = string
  default = "%{primary}"
}

variable "primary_resource_group" {
  type = string
}

variable "secondary_name" {
  description = "It exists already, and is Standard or Premium."
  type        = string%{secondary}
}

variable "secondary_resource_group" {
  type = string
}

variable "backlog_queue_count" {
  type    = number
  default = %{count}
}

variable "with_board" {
  description = "Make the board, %{board}, on which processes say how they are doing."
  type        = bool
  default     = %{with_board}
}

variable "with_keys" {
  description = "Make authorization rules (keys) for sender, syphon and monitor."
  type        = bool
  default     = true
}

variable "with_manager_key" {
  description = "Make the key of the manager too: for applications that create the queues themselves."
  type        = bool
  default     = false
}

variable "sender_principal_id" {
  description = "Object id of the identity of the sending applications; empty: none."
  type        = string
  default     = ""
}

variable "syphon_principal_id" {
  description = "Object id of the identity of the syphon; empty: none."
  type        = string
  default     = ""
}

variable "monitor_principal_id" {
  description = "Object id of the identity of the monitor; empty: none."
  type        = string
  default     = ""
}

data "azurerm_servicebus_namespace" "primary" {
  name                = var.primary_name
  resource_group_name = var.primary_resource_group
}

data "azurerm_servicebus_namespace" "secondary" {
  name                = var.secondary_name
  resource_group_name = var.secondary_resource_group
}

locals {
  namespaces = {
    primary   = data.azurerm_servicebus_namespace.primary.id
    secondary = data.azurerm_servicebus_namespace.secondary.id
  }
}

# In names of resources a tilde stands for the slash.
resource "azurerm_servicebus_queue" "backlog" {
  count        = var.backlog_queue_count
  name         = "${var.primary_name}~x-servicebus-transfer~${count.index}"
  namespace_id = local.namespaces.secondary

%{settings}
}

resource "azurerm_servicebus_queue" "board" {
  count        = var.with_board ? 1 : 0
  name         = "${var.primary_name}~x-twinbus-board"
  namespace_id = local.namespaces.secondary

%{board_settings}
}

resource "azurerm_servicebus_namespace_authorization_rule" "sender" {
  for_each     = { for side, id in local.namespaces : side => id if var.with_keys }
  name         = "twinbus-sender"
  namespace_id = each.value
  send         = true
  listen       = false
  manage       = false
}

resource "azurerm_servicebus_namespace_authorization_rule" "syphon" {
  for_each     = { for side, id in local.namespaces : side => id if var.with_keys }
  name         = "twinbus-syphon"
  namespace_id = each.value
  send         = each.key == "primary" || var.with_board
  listen       = each.key == "secondary"
  manage       = false
}

resource "azurerm_servicebus_namespace_authorization_rule" "monitor" {
  for_each     = { for side, id in local.namespaces : side => id if var.with_keys }
  name         = "twinbus-monitor"
  namespace_id = each.value
  send         = false
  listen       = true
  manage       = false
}

resource "azurerm_servicebus_namespace_authorization_rule" "manager" {
  count        = var.with_manager_key ? 1 : 0
  name         = "twinbus-manager"
  namespace_id = local.namespaces.secondary
  send         = true
  listen       = true
  manage       = true
}

%{backlog_grants}
%{board_grants}
# On the primary two send and one listens. Narrow the scope to the entities in question where that is wanted.
%{primary_grants}""")


def _grant(count: str, scope: str) -> ToolTemplate:
    return ToolTemplate(f"""\
resource "azurerm_role_assignment" "%{{name}}" {{
  count                = {count}
  scope                = {scope}
  role_definition_name = "Azure Service Bus Data %{{right}}"
  principal_id         = var.%{{who}}_principal_id
}}
""")


_IS_NOBODY = 'var.%{who}_principal_id == ""'
_BACKLOG_GRANT = _grant(
    f"{_IS_NOBODY} ? 0 : var.backlog_queue_count", "azurerm_servicebus_queue.backlog[count.index].id"
)
_BOARD_GRANT = _grant('var.with_board && var.%{who}_principal_id != "" ? 1 : 0', "azurerm_servicebus_queue.board[0].id")
_PRIMARY_GRANT = _grant(f"{_IS_NOBODY} ? 0 : 1", "local.namespaces.primary")


def write(order: ProvisioningRequest) -> str:
    settings, board = (_lines(wanted) for wanted in (BACKLOG_SETTINGS, BOARD_SETTINGS))
    return fill(
        FORM,
        order,
        "#",
        settings=settings,
        board_settings=board,
        secondary="" if order.secondary is None else f'\n  default     = "{order.secondary}"',
        with_board="true" if order.has_board else "false",
        backlog_grants=grants("backlog", _BACKLOG_GRANT),
        board_grants=grants("board", _BOARD_GRANT),
        primary_grants=grants("primary", _PRIMARY_GRANT),
    )


def _lines(wanted: Mapping[str, int | str | bool]) -> str:
    width = max(len(NAMES[setting]) for setting in wanted)
    return "\n".join(settings_lines(NAMES, f"  {{name:{width}}} = {{value}}", settings=wanted))
