"""deploy/compose: its files are read by the programs that they are for, agree with each other, and work as processes."""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.load.specs import load_cluster
from tests.deploy.clean_root import GIVEN, HOME, KEPT, need, run_inside, site_packages
from tests.wheel.wheel_harness import SOURCES, build_wheel

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/compose"
DEPLOY = ROOT / "deploy"
SERVICES = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]


def mounts_of(service: str) -> dict[str, str]:
    """Return what a service sees: path inside -> file of the tree (absolute), or the name of a volume."""
    found = {}
    for text in SERVICES[service]["volumes"]:
        source, target = text.split(":")[:2]
        found[target] = str((FOLDER / source).resolve()) if source.startswith(".") else source
    return found


@pytest.mark.costly
def test_compose_reads_the_file() -> None:
    """The program of Debian's package, which checks it against the schema of Compose, finds nothing wrong."""
    if shutil.which("docker-compose") is None:
        assert not os.environ.get("CI"), "tests/install-tools.sh installs docker-compose"
        pytest.skip("no docker-compose; tests/install-tools.sh installs it")
    done = subprocess.run(
        ["docker-compose", "--file", FOLDER / "compose.yaml", "config", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_file_that_is_mounted_exists_and_every_volume_is_declared() -> None:
    """A path that is missing would become an empty folder in the container."""
    declared = yaml.safe_load((FOLDER / "compose.yaml").read_text())["volumes"]
    for name, service in SERVICES.items():
        if "volumes" not in service:
            continue
        for source in mounts_of(name).values():
            assert Path(source).is_file() if source.startswith("/") else source in declared, source


def test_each_service_is_given_the_files_that_it_is_started_with() -> None:
    """Configurations that commands and other files name lie where they are mounted."""
    prometheus = mounts_of("prometheus")
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    assert prometheus["/etc/prometheus/prometheus.yml"] == str(DEPLOY / "prometheus.yml")
    for name in config["rule_files"]:
        assert prometheus[f"/etc/prometheus/{name}"] == str(DEPLOY / name)
    manager = mounts_of("alertmanager")
    assert manager["/etc/alertmanager/alertmanager.yml"] == str(DEPLOY / "alertmanager.yml")
    for service in ("prometheus", "alertmanager"):
        [file] = [word for word in SERVICES[service]["command"] if "config.file" in word]
        assert file.partition("=")[2] in mounts_of(service)
    grafana = mounts_of("grafana")
    [provider] = yaml.safe_load((DEPLOY / "grafana/dashboards.yaml").read_text())["providers"]
    boards = {
        f"{provider['options']['path']}/{path.name}" for path in DEPLOY.glob("grafana/*.json")
    }
    assert boards <= grafana.keys()
    assert SERVICES["redis"]["command"][1] in mounts_of("redis")


def test_all_services_share_one_network_so_that_localhost_holds() -> None:
    """Redis, Prometheus, Alertmanager and the supervisor are named by localhost in the files that they have."""
    shared = {name for name in SERVICES if name != "network"}
    assert {SERVICES[name]["network_mode"] for name in shared} == {"service:network"}
    published = [text.split(":") for text in SERVICES["network"]["ports"]]
    assert {address for address, *_ in published} == {"127.0.0.1"}
    assert {inner for *_, inner in published} == {"3000", "9090", "9093"}


def test_no_service_depends_on_one_that_ends() -> None:
    """Podman starts no container again while one that it depends on has ended."""
    for name, service in SERVICES.items():
        assert service["restart"] == "unless-stopped", name


def test_the_image_is_built_of_what_a_wheel_is_built_of() -> None:
    """.dockerignore lets in what setup.py needs, and the entry point is a command with the options that the file gives."""
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    assert allowed == {*SOURCES, "constraints.txt"}
    assert all((ROOT / name).exists() for name in allowed)
    lines = (FOLDER / "Containerfile").read_text().splitlines()
    parts = dict(line.split(" ", 1) for line in lines if re.match(r"[A-Z]+ ", line))
    assert json.loads(parts["ENTRYPOINT"]) == ["stoker"]
    command, *options = json.loads(parts["CMD"])
    from runner.cli.daemons import supervise

    assert command == "supervise"
    known = {text for option in supervise.params for text in option.opts}
    assert {word for word in options if word.startswith("--")} <= known
    assert options[-1] in mounts_of("supervisor")


SCRIPT = f"""
set -eu
mkdir -p /etc/stoker/secrets /etc/redis /var/lib/stoker /var/lib/redis /run/secrets
ln -s /etc/stoker/secrets /run/secrets/stoker
cp {GIVEN}/cluster.yaml /etc/stoker/
cp {GIVEN}/redis.conf /etc/redis/
python3 -m venv {HOME}/stoker
cp {GIVEN}/dependencies.pth {HOME}/stoker/lib/python3.*/site-packages/
{HOME}/stoker/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --no-index {GIVEN}/*.whl
PATH={HOME}/stoker/bin:$PATH
cd /etc/stoker
sh {GIVEN}/make-secrets.sh /etc/stoker/cluster.yaml /etc/stoker/secrets
sha256sum secrets/* > before
sh {GIVEN}/make-secrets.sh /etc/stoker/cluster.yaml /etc/stoker/secrets
sha256sum --check --quiet before
stat -c "%a %n" secrets/*
(cd /var/lib/redis; exec REDIS) > {KEPT}/redis.log 2>&1 &
until stoker store doctor --cluster cluster.yaml > {KEPT}/doctor.txt 2>&1; do
    kill -0 $! || {{ cat {KEPT}/redis.log; exit 1; }}
    sleep 0.2
done
stoker supervise --standby --cluster /etc/stoker/cluster.yaml > {KEPT}/supervisor.log 2>&1 &
until HEALTHY > {KEPT}/health.txt 2>&1; do
    kill -0 $! || {{ cat {KEPT}/supervisor.log; exit 1; }}
    sleep 0.2
done
until stoker metrics > {KEPT}/metrics.txt && grep -q "^stoker_up 1" {KEPT}/metrics.txt; do sleep 0.2; done
stoker status
stoker shutdown --cluster /etc/stoker/cluster.yaml
wait $!
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with what the services are given."""
    given = tmp_path / "given"
    given.mkdir()
    (tmp_path / "kept").mkdir()
    shutil.copy(build_wheel(tmp_path / "wheel"), given)
    (given / "dependencies.pth").write_text(site_packages())
    for path in (FOLDER / "cluster.yaml", FOLDER / "make-secrets.sh", DEPLOY / "redis.conf"):
        shutil.copy(path, given)
    return tmp_path


@pytest.mark.e2e
@pytest.mark.slow
def test_redis_and_the_supervisor_work_with_these_files(place: Path) -> None:
    """As processes at the paths of the containers: secrets are made once, the store passes its checks, metrics are served."""
    need("redis-server")
    command = " ".join(SERVICES["redis"]["command"])
    check = shlex.join(SERVICES["supervisor"]["healthcheck"]["test"][1:])
    script = SCRIPT.replace("REDIS", command).replace("HEALTHY", check)
    output = run_inside(script, place, seconds=100)
    listed = re.findall(r"^(\d{3}) (secrets/\S+)$", output, re.MULTILINE)
    modes = {name: mode for mode, name in listed}
    assert modes.pop("secrets/users.acl") == "644"
    assert len(modes) == 7
    assert {*modes.values()} == {"600"}, modes
    assert "FAIL" not in (place / "kept/doctor.txt").read_text()
    metrics = (place / "kept/metrics.txt").read_text()
    assert re.search(r'^stoker_cluster_info{cluster="lab",.* 1', metrics, re.MULTILINE)
    assert re.search(r"^stoker_lease_remaining_seconds [1-9]", metrics, re.MULTILINE)


def test_our_own_loader_reads_the_cluster(tmp_path: Path) -> None:
    """cluster.yaml is valid, with the port that Prometheus scrapes, the name that it adds, and the address that Redis serves."""
    text = (FOLDER / "cluster.yaml").read_text().replace("/etc/stoker/secrets", str(tmp_path))
    (tmp_path / "cluster.yaml").write_text(text)
    password = tmp_path / "stoker.password"
    password.write_text("sesame")
    password.chmod(0o600)
    spec = load_cluster(tmp_path / "cluster.yaml")
    scraped: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    [job] = scraped["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"localhost:{spec.metrics_port}"]}]
    assert scraped["global"]["external_labels"] == {"cluster": spec.name}
    port = re.search(r"^port (\d+)$", (DEPLOY / "redis.conf").read_text(), re.MULTILINE)
    assert port is not None
    assert spec.store.address == f"127.0.0.1:{port[1]}"
