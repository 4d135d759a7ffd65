"""The socket of a connection: straight or through a proxy, with TLS, as AMQP or in a WebSocket."""
