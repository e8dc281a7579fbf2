"""What is done with queues, plain and of batches: found, read, repaired, planned and built."""
