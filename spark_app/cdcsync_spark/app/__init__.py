"""What runs as a process of its own."""
