"""Links of our own AMQP engine for a pair, in place of the official SDK's: many messages at a time on one link.

send_window.py   the unanswered transfers of one link, and their time-outs (no clock, no sockets)
failures.py      failures as a sender gets them
links.py         links on one shared connection, one for each path
backlog.py       backlog queues on such links
transport.py     all of it, as whatever runs a pair wants it
"""
