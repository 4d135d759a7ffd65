"""An outage on this machine: namespaces, a sender and receivers in real processes, checked by their journals."""
