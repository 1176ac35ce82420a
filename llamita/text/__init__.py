"""Raw text in, clean documents out."""
