"""Where the row of each key is live, on the disk of the driver."""
