"""The order in Terraform's language, for the provider azurerm 4 and later."""

from __future__ import annotations

from collections.abc import Mapping

from twinbus.board.queue import BOARD_SETTINGS
from twinbus.cli.provisioning.templates import ProvisioningRequest, ToolTemplate, fill, settings_lines
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

resource "azurerm_role_assignment" "sender_on_backlog" {
  count                = var.sender_principal_id == "" ? 0 : var.backlog_queue_count
  scope                = azurerm_servicebus_queue.backlog[count.index].id
  role_definition_name = "Azure Service Bus Data Sender"
  principal_id         = var.sender_principal_id
}

resource "azurerm_role_assignment" "syphon_on_backlog" {
  count                = var.syphon_principal_id == "" ? 0 : var.backlog_queue_count
  scope                = azurerm_servicebus_queue.backlog[count.index].id
  role_definition_name = "Azure Service Bus Data Receiver"
  principal_id         = var.syphon_principal_id
}

resource "azurerm_role_assignment" "monitor_on_backlog" {
  count                = var.monitor_principal_id == "" ? 0 : var.backlog_queue_count
  scope                = azurerm_servicebus_queue.backlog[count.index].id
  role_definition_name = "Azure Service Bus Data Receiver"
  principal_id         = var.monitor_principal_id
}

resource "azurerm_role_assignment" "sender_on_board" {
  count                = var.with_board && var.sender_principal_id != "" ? 1 : 0
  scope                = azurerm_servicebus_queue.board[0].id
  role_definition_name = "Azure Service Bus Data Sender"
  principal_id         = var.sender_principal_id
}

resource "azurerm_role_assignment" "syphon_sends_to_board" {
  count                = var.with_board && var.syphon_principal_id != "" ? 1 : 0
  scope                = azurerm_servicebus_queue.board[0].id
  role_definition_name = "Azure Service Bus Data Sender"
  principal_id         = var.syphon_principal_id
}

resource "azurerm_role_assignment" "syphon_reads_board" {
  count                = var.with_board && var.syphon_principal_id != "" ? 1 : 0
  scope                = azurerm_servicebus_queue.board[0].id
  role_definition_name = "Azure Service Bus Data Receiver"
  principal_id         = var.syphon_principal_id
}

resource "azurerm_role_assignment" "monitor_on_board" {
  count                = var.with_board && var.monitor_principal_id != "" ? 1 : 0
  scope                = azurerm_servicebus_queue.board[0].id
  role_definition_name = "Azure Service Bus Data Receiver"
  principal_id         = var.monitor_principal_id
}

# On the primary two send and one listens. Narrow the scope to the entities in question where that is wanted.
resource "azurerm_role_assignment" "sender_on_primary" {
  count                = var.sender_principal_id == "" ? 0 : 1
  scope                = local.namespaces.primary
  role_definition_name = "Azure Service Bus Data Sender"
  principal_id         = var.sender_principal_id
}

resource "azurerm_role_assignment" "syphon_on_primary" {
  count                = var.syphon_principal_id == "" ? 0 : 1
  scope                = local.namespaces.primary
  role_definition_name = "Azure Service Bus Data Sender"
  principal_id         = var.syphon_principal_id
}

resource "azurerm_role_assignment" "monitor_on_primary" {
  count                = var.monitor_principal_id == "" ? 0 : 1
  scope                = local.namespaces.primary
  role_definition_name = "Azure Service Bus Data Receiver"
  principal_id         = var.monitor_principal_id
}
""")


def write(order: ProvisioningRequest) -> str:
    default = "" if order.secondary is None else f'\n  default     = "{order.secondary}"'
    settings, board = (_lines(wanted) for wanted in (BACKLOG_SETTINGS, BOARD_SETTINGS))
    return fill(FORM, order, settings, board, default, "#")


def _lines(wanted: Mapping[str, int | str | bool]) -> str:
    width = max(len(NAMES[setting]) for setting in wanted)
    return "\n".join(settings_lines(NAMES, f"  {{name:{width}}} = {{value}}", settings=wanted))
