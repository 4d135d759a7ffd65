"""What pairing costs: prices, how operations are counted, a forecast, and the tables that both it and Spark end in."""
