"""How our own AMQP engine reaches a peer: dial, TLS, SASL, tokens, links, requests, peeks.

dial.py          what has to be known to connect
way.py           connects: straight or through a proxy, with TLS or without, as AMQP or in a WebSocket
http_tunnel.py   a connection through an HTTP proxy
websocket_client.py  the client's end of AMQP over WebSocket
connection.py    a connection to one namespace: opening, links, requests
shared_connection.py  one for many users, opened when it is needed
amqp_stream.py   the socket under it
link_handler.py  receives what happens on a link
link_limits.py   what a peer takes at once
requests.py      requests to `$cbs` and `<entity>/$management`
tokens.py        puts tokens and renews them in time
peek.py          looks into a queue without taking anything
annotations.py   what the service writes into a message's annotations
failures.py      errors of a peer, classified
"""
