"""How fast the namespace is: beside RabbitMQ, and with a million messages stored. `make bench` runs it."""
