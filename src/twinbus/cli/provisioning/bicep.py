"""The order in Bicep."""

from __future__ import annotations

from twinbus.board.queue import BOARD_SETTINGS
from twinbus.cli.provisioning.templates import (
    RECEIVER_ROLE_ID,
    SENDER_ROLE_ID,
    ProvisioningRequest,
    ToolTemplate,
    fill,
    grants,
    settings_lines,
)

NAMES = {
    "max_size_in_megabytes": "maxSizeInMegabytes",
    "max_delivery_count": "maxDeliveryCount",
    "default_message_time_to_live": "defaultMessageTimeToLive",
    "auto_delete_on_idle": "autoDeleteOnIdle",
    "lock_duration": "lockDuration",
    "dead_lettering_on_message_expiration": "deadLetteringOnMessageExpiration",
    "enable_batched_operations": "enableBatchedOperations",
    "requires_session": "requiresSession",
    "requires_duplicate_detection": "requiresDuplicateDetection",
    "enable_partitioning": "enablePartitioning",
}

FORM = ToolTemplate("""\
// Backlog queues %{first} to %{last}, for twinbus with create_backlog=False.
// Deploy it twice, as the namespaces may be in different resource groups:
//   az deployment group create --resource-group GROUP --template-file backlog.bicep --parameters side=secondary
//   az deployment group create --resource-group GROUP --template-file backlog.bicep --parameters side=primary
//
%{roles}

@allowed(['secondary', 'primary'])
param side string

param primaryName string = '%{primary}'

@description('It exists already, and is Standard or Premium.')
param secondaryName string%{secondary}

param backlogQueueCount int = %{count}

@description('Make the board, %{board}, on which processes say how they are doing.')
param withBoard bool = %{with_board}

@description('Make authorization rules (keys) for sender, syphon and monitor.')
param withKeys bool = true

@description('Make the key of the manager too: for applications that create the queues themselves.')
param withManagerKey bool = false

@description('Object id of the identity of the sending applications; empty: none.')
param senderPrincipalId string = ''

@description('Object id of the identity of the syphon; empty: none.')
param syphonPrincipalId string = ''

@description('Object id of the identity of the monitor; empty: none.')
param monitorPrincipalId string = ''

var isSecondary = side == 'secondary'
var isPrimary = !isSecondary
var hasSender = !empty(senderPrincipalId)
var hasSyphon = !empty(syphonPrincipalId)
var hasMonitor = !empty(monitorPrincipalId)
var hasBoard = isSecondary && withBoard
var hasManagerKey = isSecondary && withManagerKey

resource bus 'Microsoft.ServiceBus/namespaces@2021-11-01' existing = {
  name: isSecondary ? secondaryName : primaryName
}

// In names of resources a tilde stands for the slash.
resource backlog 'Microsoft.ServiceBus/namespaces/queues@2021-11-01' = [
  for index in range(0, backlogQueueCount): if (isSecondary) {
    parent: bus
    name: '${primaryName}~x-servicebus-transfer~${index}'
    properties: {
%{settings}
    }
  }
]

resource board 'Microsoft.ServiceBus/namespaces/queues@2021-11-01' = if (hasBoard) {
  parent: bus
  name: '${primaryName}~x-twinbus-board'
  properties: {
%{board_settings}
  }
}

resource senderKey 'Microsoft.ServiceBus/namespaces/AuthorizationRules@2021-11-01' = if (withKeys) {
  parent: bus
  name: 'twinbus-sender'
  properties: {
    rights: ['Send']
  }
}

resource syphonKey 'Microsoft.ServiceBus/namespaces/AuthorizationRules@2021-11-01' = if (withKeys) {
  parent: bus
  name: 'twinbus-syphon'
  properties: {
    rights: isSecondary ? (withBoard ? ['Listen', 'Send'] : ['Listen']) : ['Send']
  }
}

resource monitorKey 'Microsoft.ServiceBus/namespaces/AuthorizationRules@2021-11-01' = if (withKeys) {
  parent: bus
  name: 'twinbus-monitor'
  properties: {
    rights: ['Listen']
  }
}

resource managerKey 'Microsoft.ServiceBus/namespaces/AuthorizationRules@2021-11-01' = if (hasManagerKey) {
  parent: bus
  name: 'twinbus-manager'
  properties: {
    rights: ['Manage', 'Send', 'Listen']
  }
}

var dataSender = subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '%{sender_role}')
var dataReceiver = subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '%{receiver_role}')

%{backlog_grants}
%{board_grants}
// On the primary two send and one listens. Narrow the scope to the entities in question where that is wanted.
%{primary_grants}""")

_BACKLOG_GRANT = ToolTemplate("""\
resource %{camelName} 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for index in range(0, backlogQueueCount): if (isSecondary && has%{Who}) {
    name: guid(bus.id, string(index), %{who}PrincipalId, data%{right})
    scope: backlog[index]
    properties: {
      principalId: %{who}PrincipalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: data%{right}
    }
  }
]
""")


def _grant(condition: str, called: str, scope: str) -> ToolTemplate:
    return ToolTemplate(f"""\
resource %{{camelName}} 'Microsoft.Authorization/roleAssignments@2022-04-01' = if ({condition} && has%{{Who}}) {{
  name: guid(bus.id, {called}%{{who}}PrincipalId, data%{{right}})
  scope: {scope}
  properties: {{
    principalId: %{{who}}PrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: data%{{right}}
  }}
}}
""")


def write(order: ProvisioningRequest) -> str:
    return fill(
        FORM,
        order,
        "//",
        settings="\n".join(settings_lines(NAMES, "      {name}: {value}", "'")),
        board_settings="\n".join(settings_lines(NAMES, "    {name}: {value}", "'", BOARD_SETTINGS)),
        secondary="" if order.secondary is None else f" = '{order.secondary}'",
        with_board="true" if order.has_board else "false",
        sender_role=SENDER_ROLE_ID,
        receiver_role=RECEIVER_ROLE_ID,
        backlog_grants=grants("backlog", _BACKLOG_GRANT),
        board_grants=grants("board", _grant("hasBoard", "'board', ", "board")),
        primary_grants=grants("primary", _grant("isPrimary", "", "bus")),
    )
