"""What the operator keeps and does for a namespace, within bounds."""
