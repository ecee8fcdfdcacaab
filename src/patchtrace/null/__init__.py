"""Does anything stand out? What is usual for a collection, and how unusual a query is."""
