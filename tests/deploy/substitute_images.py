"""Images of this machine's Debian packages in the place of those that compose.yaml pulls, where no registry can be reached.

They have the names, users, folders and entry points of the real ones, and other versions of the programs.
"""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

BASE = "docker.io/library/python:3.11-slim-bookworm"
REDIS = f"""
FROM {BASE}
COPY lib/ /usr/lib/redis/
COPY redis-server /usr/bin/
COPY entrypoint.sh /usr/local/bin/
ENV LD_LIBRARY_PATH=/usr/lib/redis
RUN useradd --uid 999 redis && mkdir /data && chown redis /data
WORKDIR /data
ENTRYPOINT ["sh", "/usr/local/bin/entrypoint.sh"]
"""
# As root it gives the folder in which it starts to the user of the server, and becomes that user.
ENTRYPOINT = """
set -e
if [ "$1" = redis-server ] && [ "$(id -u)" = 0 ]; then
    chown redis .
    exec setpriv --reuid=redis --regid=redis --clear-groups -- "$@"
fi
exec "$@"
"""
SERVER = f"""
FROM {BASE}
COPY PROGRAM /bin/NAME
COPY templates /usr/share/prometheus/alertmanager
RUN mkdir /NAME && chown 65534 /NAME
USER 65534
WORKDIR /NAME
ENTRYPOINT ["/bin/NAME"]
"""


def make_base(folder: Path) -> Path:
    """Unpack a Debian with Python into a folder; return it as an archive. Takes about a minute."""
    root, archive = folder / "root", folder / "base.tar"
    packages = "python3,python3-pip,python3-venv,ca-certificates"
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", root],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=600,
    )
    # The real image has a Python of its own, which pip may change.
    (root / "usr/lib/python3.11/EXTERNALLY-MANAGED").unlink()
    (root / "usr/bin/python").symlink_to("python3")
    certificates = Path("etc/ssl/certs/ca-certificates.crt")
    shutil.copy("/" / certificates, root / certificates)
    subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True, timeout=120)
    shutil.rmtree(root)
    return archive


def make_images(engine: Callable[..., str], folder: Path, base: Path, wanted: set[str]) -> None:
    """Give an engine the images that are wanted, by the names of compose.yaml; `engine` runs its command with arguments."""
    engine("import", base, BASE)
    context = folder / "context"
    (context / "lib").mkdir(parents=True)
    for program in ("redis-server", "prometheus", "prometheus-alertmanager"):
        found = shutil.which(program, path="/usr/local/bin:/usr/bin")
        assert found is not None, f"tests/install-tools.sh installs {program}"
        shutil.copy(found, context)
    listed = subprocess.run(
        ["ldd", context / "redis-server"], check=True, capture_output=True, text=True
    ).stdout
    for line in listed.splitlines():
        _, arrow, path = line.partition(" => ")
        if arrow:
            shutil.copy(path.split()[0], context / "lib")
    (context / "entrypoint.sh").write_text(ENTRYPOINT)
    shutil.copytree("/usr/share/prometheus/alertmanager", context / "templates")
    recipes = {
        "library/redis": REDIS,
        "prom/prometheus": SERVER.replace("PROGRAM", "prometheus").replace("NAME", "prometheus"),
        "prom/alertmanager": SERVER.replace("PROGRAM", "prometheus-alertmanager").replace(
            "NAME", "alertmanager"
        ),
    }
    for image in sorted(wanted):
        name = image.removeprefix("docker.io/").partition(":")[0]
        (context / "Containerfile").write_text(recipes[name])
        engine("build", "-q", "-f", context / "Containerfile", "-t", image, context)
