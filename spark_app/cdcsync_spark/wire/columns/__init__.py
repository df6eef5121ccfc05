"""What both decoders read columns with: cursors, character sets, instants, texts."""
