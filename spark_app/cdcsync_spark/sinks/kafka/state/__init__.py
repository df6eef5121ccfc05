"""What a sync knows of its topics, in a topic of its own."""
