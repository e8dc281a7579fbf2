"""What is done with index files: what they are worth and cover, how they grow, and how they are built."""
