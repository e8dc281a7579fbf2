"""One message's life: its copies, its delays, and who has consumed it."""
