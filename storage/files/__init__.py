"""Files as such: mapped, open, waited for, written; nothing of RocketMQ."""
