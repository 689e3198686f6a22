"""Read-back: what the lines of a trainer that reports no settings show of those in effect."""
