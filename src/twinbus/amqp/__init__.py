"""AMQP 1.0, both ends of it: bytes in, events and bytes out. No I/O.

connection.py   the engine: handshake, frames, sessions
session.py, link.py, receiving_link.py, sending_link.py   windows, credit, deliveries
sasl.py         authentication, from either end
idle.py         keep-alives and silent peers
limits.py, peer_memory.py   what a peer may open and keep in memory
events.py       what the engine reports
outbox.py, serial.py   output in its order, numbers that wrap around
codec/          types, performatives and frames as bytes
message/        sections of encoded messages
"""
