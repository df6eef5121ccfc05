"""What a cluster allows a resource: pods, networks, Secrets."""
