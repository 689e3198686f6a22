"""The store in two SQLite files, for one machine."""
