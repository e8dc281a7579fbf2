"""Compiled code of the fast lane: read plain requests where they lie in a read, answer them without Python."""
