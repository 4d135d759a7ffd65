"""Spark, through PySpark: what happened to the messages, counted and accounted for, on one machine or many."""
