"""Node checks: health checks run as child processes, and the identity of the hardware they ran on."""
