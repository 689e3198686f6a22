"""The supervisor process: it takes the lease, reads the store, decides, persists, acts, and publishes status.

One thread owns the controller and the journal (`loop`); every other thread reaches it through one queue. Nothing below this
package imports it, except the simulator, which drives the same decision log in virtual time.
"""
