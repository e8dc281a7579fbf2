"""Index files anew from index files: taken apart, merged with the log's times, and put in order."""
