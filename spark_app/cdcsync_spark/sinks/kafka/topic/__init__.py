"""A topic as a target, beside the staged copy that its snapshot is sent from."""
