"""Message filters as brokers evaluate them: tag expressions, SQL92 and the Bloom filter of ConsumeQueueExt."""
