"""The order in Bicep."""

from __future__ import annotations

from twinbus.board.queue import BOARD_SETTINGS
from twinbus.cli.provisioning.templates import ProvisioningRequest, ToolTemplate, fill, settings_lines

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

resource senderOnBacklog 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for index in range(0, backlogQueueCount): if (isSecondary && hasSender) {
    name: guid(bus.id, string(index), senderPrincipalId, dataSender)
    scope: backlog[index]
    properties: {
      principalId: senderPrincipalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: dataSender
    }
  }
]

resource syphonOnBacklog 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for index in range(0, backlogQueueCount): if (isSecondary && hasSyphon) {
    name: guid(bus.id, string(index), syphonPrincipalId, dataReceiver)
    scope: backlog[index]
    properties: {
      principalId: syphonPrincipalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: dataReceiver
    }
  }
]

resource monitorOnBacklog 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for index in range(0, backlogQueueCount): if (isSecondary && hasMonitor) {
    name: guid(bus.id, string(index), monitorPrincipalId, dataReceiver)
    scope: backlog[index]
    properties: {
      principalId: monitorPrincipalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: dataReceiver
    }
  }
]

resource senderOnBoard 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (hasBoard && hasSender) {
  name: guid(bus.id, 'board', senderPrincipalId, dataSender)
  scope: board
  properties: {
    principalId: senderPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataSender
  }
}

resource syphonSendsToBoard 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (hasBoard && hasSyphon) {
  name: guid(bus.id, 'board', syphonPrincipalId, dataSender)
  scope: board
  properties: {
    principalId: syphonPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataSender
  }
}

resource syphonReadsBoard 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (hasBoard && hasSyphon) {
  name: guid(bus.id, 'board', syphonPrincipalId, dataReceiver)
  scope: board
  properties: {
    principalId: syphonPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataReceiver
  }
}

resource monitorOnBoard 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (hasBoard && hasMonitor) {
  name: guid(bus.id, 'board', monitorPrincipalId, dataReceiver)
  scope: board
  properties: {
    principalId: monitorPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataReceiver
  }
}

// On the primary two send and one listens. Narrow the scope to the entities in question where that is wanted.
resource senderOnPrimary 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (isPrimary && hasSender) {
  name: guid(bus.id, senderPrincipalId, dataSender)
  scope: bus
  properties: {
    principalId: senderPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataSender
  }
}

resource syphonOnPrimary 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (isPrimary && hasSyphon) {
  name: guid(bus.id, syphonPrincipalId, dataSender)
  scope: bus
  properties: {
    principalId: syphonPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataSender
  }
}

resource monitorOnPrimary 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (isPrimary && hasMonitor) {
  name: guid(bus.id, monitorPrincipalId, dataReceiver)
  scope: bus
  properties: {
    principalId: monitorPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataReceiver
  }
}
""")


def write(order: ProvisioningRequest) -> str:
    default = "" if order.secondary is None else f" = '{order.secondary}'"
    settings = "\n".join(settings_lines(NAMES, "      {name}: {value}", "'"))
    board = "\n".join(settings_lines(NAMES, "    {name}: {value}", "'", BOARD_SETTINGS))
    return fill(FORM, order, settings, board, default, "//")
