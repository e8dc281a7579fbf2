"""Search and look-up for archives: the same questions as the commands', asked of many segments by Spark."""
