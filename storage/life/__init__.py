"""One message's life: its copies, its delays, who has consumed it; and all messages that wait."""
