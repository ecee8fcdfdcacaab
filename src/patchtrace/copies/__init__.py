"""Is an image, or a part of it, in the query? A verdict for pairs of pictures."""
