"""Container engines whose images, containers and networks lie in a folder of the test: podman, and a Docker daemon of its own."""

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

COMPOSE_FILE = Path(__file__).parents[2] / "deploy/compose/compose.yaml"
# Debian 12 has 1.0.3, which knows no `network_mode: service:...`.
PODMAN_COMPOSE = "podman-compose==1.6.0"
PROJECT = "stoker"


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine's command, the compose command that uses it, and the variables of both."""

    name: str
    composer: tuple[str, ...]
    variables: dict[str, str]

    def __call__(self, *arguments: str | Path, seconds: float = 300.0) -> str:
        """Run the engine's command, which must succeed; return what it prints to stdout."""
        return self._run([self.name, *map(str, arguments)], seconds)

    def compose(self, *arguments: str, seconds: float = 500.0) -> str:
        """Run compose with the delivered file."""
        return self._run(
            [*self.composer, "-p", PROJECT, "-f", str(COMPOSE_FILE), *arguments], seconds
        )

    def in_service(self, service: str, *command: str) -> str:
        """Run a command in a service's container."""
        return self("exec", f"{PROJECT}_{service}_1", *command)

    def inspect(self, service: str, template: str) -> str:
        """Return what the engine knows of a service's container."""
        return self("inspect", "-f", template, f"{PROJECT}_{service}_1").strip()

    def is_healthy(self, service: str) -> bool:
        """Whether its health check passes; podman has systemd run it by itself, so without systemd it is run here."""
        if self.name == "podman":
            command = [self.name, "healthcheck", "run", f"{PROJECT}_{service}_1"]
            done = subprocess.run(command, env=self.variables, capture_output=True, timeout=60)
            return done.returncode == 0
        return self.inspect(service, "{{.State.Health.Status}}") == "healthy"

    def _run(self, command: list[str], seconds: float) -> str:
        done = subprocess.run(
            command,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout


def need(*programs: str) -> None:
    """Skip without these programs."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)}; docs/monitoring.md says what to install")


@contextmanager
def podman(folder: Path) -> Iterator[Engine]:
    """Podman with storage in a folder; it is removed at the end."""
    need("podman", "runc", "catatonit")
    subprocess.run([sys.executable, "-m", "venv", folder / "compose"], check=True, timeout=120)
    pip = [str(folder / "compose/bin/python"), "-m", "pip", "install", "--quiet", PODMAN_COMPOSE]
    subprocess.run(pip, check=True, timeout=300)
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/storage"\nrunroot = "{folder}/run"\n'
    )
    # Otherwise podman raises limits, for which root needs CAP_SYS_RESOURCE. crun does not know cgroups in hybrid mode.
    files = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 30_100)
    (folder / "containers.conf").write_text(
        f'[containers]\ndefault_ulimits = ["nofile={files}:{files}", "nproc=4096:4096"]\n'
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
    )
    variables = {
        **os.environ,
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        "CONTAINERS_CONF": str(folder / "containers.conf"),
    }
    composer = (str(folder / "compose/bin/podman-compose"),)
    engine = Engine(name="podman", composer=composer, variables=variables)
    try:
        yield engine
    finally:
        engine("rmi", "--all", "--force")
        subprocess.run(["umount", folder / "storage/overlay"], check=False, capture_output=True)


@contextmanager
def docker(folder: Path) -> Iterator[Engine]:
    """A Docker daemon with everything in a folder."""
    need("docker", "dockerd", "docker-compose")
    socket = f"unix://{folder}/docker.sock"
    command = ["dockerd", "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"]
    with (folder / "dockerd.log").open("wb") as log:
        daemon = subprocess.Popen(
            [*command, "--pidfile", f"{folder}/docker.pid", "-H", socket], stdout=log, stderr=log
        )
    # Its own builder; the newer one is a plugin.
    variables = {**os.environ, "DOCKER_HOST": socket, "DOCKER_BUILDKIT": "0"}
    engine = Engine(name="docker", composer=("docker-compose",), variables=variables)
    try:
        deadline = time.monotonic() + 60
        while not Path(f"{folder}/docker.sock").exists():
            assert daemon.poll() is None, (folder / "dockerd.log").read_text()
            assert time.monotonic() < deadline, (folder / "dockerd.log").read_text()
            time.sleep(0.2)
        engine("info")
        yield engine
    finally:
        daemon.terminate()
        daemon.wait(60)
