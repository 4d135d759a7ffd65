"""The conversations of a paired client, each written once; threads, tasks and tests run them.

send_flow.py         one send: to the primary, to a backlog queue or to the spool, now or later
ordered_sends.py     the same if sessions keep their order
send_record.py       what a send has come to: its receipt, or an error that has one
send_request.py      the messages of one call, for the SDK and encoded
schedule_tokens.py   what stands for the sequence numbers of messages that were scheduled in the backlog
io_requests.py       what flows ask for, and the answers
"""
