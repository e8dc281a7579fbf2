"""Messages as columns: arrays and blocks of bytes that Arrow, Parquet or NumPy take as they are."""
