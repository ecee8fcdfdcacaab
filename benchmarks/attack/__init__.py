"""A campaign against the program: hostile files, clients and interruptions, counted."""
