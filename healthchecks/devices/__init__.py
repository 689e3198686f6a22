"""What devices report of themselves, read for the checks: by a driver's library, a vendor's tool, or sysfs.

The law of this package. Whatever may hang runs in a child under a deadline, and announces each part before it asks for it, so that
the part that hung has a name and what was read before it counts. It reads and parses, and judges nothing: a value, "this device
has no such thing", and "it could not be read, because ..." are three different answers. It changes no device's settings.
"""
