"""The controller's durable state. `apply` alone changes it; `derived` caches what follows from it."""
