"""Index files and queues from what a scan found: what stays, what goes where, and the tasks that build."""
