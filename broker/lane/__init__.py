"""The short way of plain requests: the same answers in fewer steps. Without it everything is still answered."""
