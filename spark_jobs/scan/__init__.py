"""What every job begins with: which files there are, and what their records lead to."""
