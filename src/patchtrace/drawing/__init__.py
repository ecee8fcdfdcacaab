"""Pictures of results: one palette, one way to write a share, one way to put a picture into a square."""
