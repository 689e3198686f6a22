"""Commands that only read: they take the published status or the journal from the store, with or without a supervisor."""
