"""Its place among brokers: the names it stands for, and the name servers that are told of them."""
