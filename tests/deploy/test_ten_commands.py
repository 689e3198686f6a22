"""docs/monitoring.md: ten commands from nothing to a supervisor that pages, typed as they are written in a clean root."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.deploy.clean_root import GIVEN, HOME, KEPT, need, run_inside, site_packages
from tests.wheel.wheel_harness import build_wheel

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/monitoring.md").read_text()
INSTALL = "stoker-env/bin/pip install stoker"
# The port of the receivers in alertmanager.yml.
PORT = 9095
BEFORE = f"""
set -eu
cd {HOME}
python3 {GIVEN}/receiver.py {PORT} {KEPT}/received &
"""
# pip has no index here.
OFFLINE = f"""
cp {GIVEN}/dependencies.pth stoker-env/lib/python3.*/site-packages/
stoker-env/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --no-index {GIVEN}/*.whl
"""
# The page is a person's proof; here the webhook's file is.
AFTER = f"""
arrived() {{ grep -qs "$1" {KEPT}/received; }}
for _ in $(seq 1200); do
    if arrived '"/ticket", "StokerPage"' && arrived '"StokerWatchdog", "firing", .*instance'; then break; fi
    sleep 0.1
done
cp *.log {KEPT}
stoker shutdown
"""


def commands() -> list[str]:
    """Return the commands of the page's first block that has any."""
    section = PAGE.partition("## Ten commands\n")[2].partition("\n## ")[0]
    return re.findall(r"^\$ (.*)$", section, re.MULTILINE)


def script() -> str:
    """Return a script that types each command and prints it before, without an error that goes unnoticed."""
    typed = [
        f"printf '%s\\n' {shlex.quote('$ ' + command)}\n{OFFLINE if command == INSTALL else command}"
        for command in commands()
    ]
    return "\n".join([BEFORE, *typed, AFTER])


def test_there_are_ten() -> None:
    """No more and no fewer, one of which installs Stoker."""
    assert len(commands()) == 10
    assert INSTALL in commands()


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ten_commands_lead_to_a_supervisor_that_pages(tmp_path: Path) -> None:
    """The test page is a ticket, since it can wait, and Prometheus holds the switch; what each command said is printed."""
    need("prometheus", "prometheus-alertmanager", "unshare")
    given, kept = tmp_path / "given", tmp_path / "kept"
    for folder in (given, kept):
        folder.mkdir()
    shutil.copy(build_wheel(tmp_path / "wheel"), given)
    shutil.copy(Path(__file__).with_name("receiver.py"), given)
    (given / "dependencies.pth").write_text(site_packages())
    output = run_inside(script(), tmp_path, seconds=240)
    print(output)
    received = [json.loads(line) for line in (kept / "received").read_text().splitlines()]
    logs = "\n".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(kept.glob("*.log")))
    pages = [row for row in received if row[:2] == ["/ticket", "StokerPage"]]
    assert len(pages) == 1, (output, received, logs)
    held = [row for row in received if row[:2] == ["/dead-mans-switch", "StokerWatchdog"]]
    assert any("instance" in row[3] for row in held), (received, logs)
    assert all(row[2] == "firing" for row in held)
