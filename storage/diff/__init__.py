"""What two stores have in common, and what not."""
