"""Sockets of a namespace: the listener, TLS, AMQP and HTTP connections."""
