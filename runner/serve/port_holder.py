"""Who listens on a port that is in use."""


def holder_of(port: int) -> str:
    """Name the process that listens on a port, if this process may see it."""
    import psutil

    try:
        for connection in psutil.net_connections(kind="tcp"):
            taken = connection.laddr and connection.laddr.port == port
            if taken and connection.status == psutil.CONN_LISTEN and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        pass
    return " by another process"
