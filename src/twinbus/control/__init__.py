"""Processes of this machine: registered, asked and steered through control sockets."""
