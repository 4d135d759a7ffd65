"""Single messages: found by peeking, and resubmitted, dead-lettered or purged by receiving them under lock.

place.py            a queue, a subscription, or the dead letters of one
contents.py         what is in a message, as people and programs read it
browsed_message.py  a message that was peeked at
choice.py           which messages are meant
browser.py          finds them
changes.py          resubmits, dead-letters and purges them
quarantine_choice.py  the same choice among messages in quarantine, sent home
"""
