"""`format("servicebus")`: queues of a namespace as a source and a sink of Spark, batch and streaming.

Reading browses: it peeks by sequence number, takes nothing, locks nothing, and the same numbers can be read again.
Writing sends in batches; the message id is what makes a repeated send recognisable.
"""
