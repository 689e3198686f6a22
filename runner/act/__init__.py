"""Act: run actions against the world, each with a deadline; each outcome comes back as an ActionResult.

Nothing here decides. Every action may run twice: after a crash, those without an outcome are issued again.
"""
