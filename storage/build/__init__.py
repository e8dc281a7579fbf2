"""What writes index files and queue files."""
