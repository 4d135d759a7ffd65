"""The private parts of the official SDK that twinbus uses. No other folder touches them; a test reads every file.

Nothing promises that they stay. A version without them is refused with what to install; a version that has them but was
not tested is used with a warning (`required_parts.py`).
"""
