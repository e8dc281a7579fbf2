"""Messages as files: what is written, in which formats, and the manifest that lists it."""
