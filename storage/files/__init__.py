"""Files as such: mapped, open, resident, written; nothing of RocketMQ."""
