"""The board: one queue of the secondary on which the processes of a pair say how they are doing.

The protocol is here as values and decisions without I/O. docs/reference/board.md describes it for others.

queue.py, message.py   the queue, and a report as a message
report.py, fleet.py    what one process says, and what all of them together do
schedule.py            when to post
board_peek.py          what to read
quorum.py              which findings of other hosts may be acted on

poster.py   posts
reader.py   reads
sharer.py   reads in the background, while something is suspect
"""
