"""Messages as files: what is written, how, and the manifest that tells what was."""
