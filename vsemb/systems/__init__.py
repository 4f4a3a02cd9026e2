"""Systems: one folder for each beyond plain retrieval."""
