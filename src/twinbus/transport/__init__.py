"""How our own AMQP engine reaches a peer: dial, TLS, SASL, tokens, links, requests, peeks.

dial.py               what has to be known to connect
connection.py         a connection to one namespace: opening, links, requests
shared_connection.py  one for many users, opened when it is needed
tokens.py             puts tokens and renews them in time
failures.py           errors of a peer, classified
network/              the socket under a connection: straight or through a proxy, with TLS, as AMQP or in a WebSocket
links/                what is done on links: sending, asking, peeking, taking under lock
"""
