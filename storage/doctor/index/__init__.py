"""Checks of the index: each file by itself and what of the log it holds, and every entry beside the keys of the log."""
