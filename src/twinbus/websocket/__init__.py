"""AMQP inside WebSocket messages (OASIS AMQP WebSocket Binding), for both ends. No sockets are opened here.

http_head.py   the head of an HTTP request or response, within a bound
handshake.py   how an HTTP connection becomes a WebSocket, asked and answered
framing.py     AMQP bytes to WebSocket messages and back
framed_transport.py  a transport of asyncio that does this for the protocol above it
"""
