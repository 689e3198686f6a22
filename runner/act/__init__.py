"""Act: intents become effects on the world, each with a deadline, each outcome coming back as an ActionResult.

Nothing here decides. Every kind of action may be performed twice (after a crash those without an outcome are issued again).
"""
