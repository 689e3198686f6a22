"""Step formats: metric lines of known trainers, and how a log's format is recognised."""
