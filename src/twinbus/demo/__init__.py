"""A story that really happens: namespaces, a sender, a receiver, an outage, and a judge who believes only what the
sender and the receiver wrote down."""
