"""The board: one queue of the secondary on which the processes of a pair say how they are doing.

The protocol is here as values and decisions without I/O (`report`, `schedule`, `look`, `fleet`, `quorum`); `poster`,
`reader` and `sharer` carry it out. docs/reference/board.md describes it for other implementations.
"""
