"""The embedded namespace: a broker that official clients of Service Bus accept.

server.py, endpoint.py   a running namespace and its port, put together
scheduler.py             what is done later, and when
net/        sockets, TLS, HTTP, WebSocket
links/      links of a connection: attach, deliveries, settlement, requests; asks a back end
core/       the state machine and the commit gate
entities/   queues, topics, subscriptions, sessions, dead letters
filters/    conditions and actions of rules
store/      what is on the disk, or in memory
auth/       keys, tokens, rights
admin/      administration over HTTP
faults/     faults on purpose, throttling
ops/        metrics, control socket, dumps, backups
"""
