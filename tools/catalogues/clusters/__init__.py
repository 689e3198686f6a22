"""Catalogues of what starts, schedules and watches runs: schedulers, launchers, service managers, container run times."""
