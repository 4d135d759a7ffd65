"""What is done on links of our own: send, ask, peek, take under lock."""
