"""Index files: their bytes, whether they are sound, what they cover, how they grow, and entries for the rest."""
