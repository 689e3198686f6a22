"""Run times of containers: containerd, and Docker's engine."""

from tools.catalogues.clusters.emitter import Emitter
from tools.catalogues.clusters.kubernetes import level_of_go
from tools.catalogues.rules import Rule

_RULES = (
    Rule(
        r"no space left|disk quota|snapshot.*(?:fail|error)|failed to (?:mount|unmount|umount)|input/output|read-only",
        "filesystem",
        "the disk that holds images and containers",
        scope="storage",
    ),
    Rule(
        r"out of memory|\boom[- ]?kill",
        "host_oom",
        "the container's memory ran out",
        layer="machine",
        scope="node",
    ),
    Rule(
        r"(?:containerd|shim|daemon) .*(?:exited|died|lost|not (?:running|responding)|disconnect)|runtime .*unavailable"
        r"|shim .*(?:dead|lost)|connection to containerd",
        "node_failure",
        "the run time of this node does not work",
        levels=("error", "warning"),
        scope="node",
    ),
    Rule(
        r"pull|manifest|registry|unauthorized|authentication|OCI runtime|create (?:shim|container|task)"
        r"|runtime.* create|spec\b|nvidia|no such (?:image|container)|image .*(?:not found|does not exist)",
        "config_error",
        "an image, or a container as it was specified, cannot be had",
        levels=("error",),
        scope="user",
    ),
)

CONTAINERD = Emitter(
    "containerd",
    "containerd",
    "containerd",
    "1.7.24~ds1",
    (
        "pkg/cri",
        "runtime",
        "remotes",
        "snapshots",
        "services",
        "oci",
        "content",
        "metadata",
        "gc",
        "cio",
        "mount",
    ),
    level_of=level_of_go,
    layer="launcher",
    scope="node",
    rules=_RULES,
    suffixes=(".go",),
    daemons=("",),
    left_out=("test", "windows", "freebsd", "devmapper", "zfs", "fuzz"),
)
DOCKER = Emitter(
    "docker",
    "Docker Engine",
    "docker.io",
    "26.1.5+dfsg1",
    (
        "engine/daemon",
        "engine/libcontainerd",
        "engine/distribution",
        "engine/container",
        "engine/volume",
    ),
    level_of=level_of_go,
    layer="launcher",
    scope="node",
    rules=_RULES,
    suffixes=(".go",),
    daemons=("",),
    left_out=("test", "windows", "freebsd", "swarm", "cluster", "zfs", "splunk", "awslogs", "gelf"),
)
