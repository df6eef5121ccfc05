"""Tables of the source as the catalog has them, and the splits that they are read in."""
