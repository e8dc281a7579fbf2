"""Messages as rows of a DataFrame: the data source, its options, filters, partitions and streams."""
