"""Acts as systemd does on a unit of deploy/: the delivered command line, with only the paths of installation and settings replaced.

A real systemd would have to be the first process of a machine: in a namespace it clears the machine's own /tmp. The driver refuses
settings that it does not know, and runs everything as the tests' own user.
"""

import configparser
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.e2e.cluster_harness import STOKER, ClusterHarness, kill

DEPLOY = Path(__file__).parents[2] / "deploy"
# Keys with what the driver does about them; a pattern of values it knows, or None for any.
KNOWN: Mapping[str, tuple[str, ...] | None] = {
    "Type": ("exec",),
    "User": None,
    "Group": None,
    "ExecStart": None,
    "Restart": ("on-failure",),
    "RestartSec": None,
    "RestartPreventExitStatus": None,
    "KillMode": ("process", "control-group"),
    "TimeoutStopSec": None,
    "NoNewPrivileges": ("yes",),
    "ProtectSystem": ("full",),
    "ProtectKernelTunables": ("yes",),
    "ProtectControlGroups": ("yes",),
    # Limits that only widen what the service may have.
    "OOMPolicy": ("continue",),
    "LimitMEMLOCK": ("infinity",),
    "LimitNOFILE": None,
    "TasksMax": ("infinity",),
}
# What a setting makes read-only.
READ_ONLY = {
    "ProtectSystem": ("/usr", "/boot", "/etc"),
    "ProtectKernelTunables": ("/proc/sys",),
    "ProtectControlGroups": ("/sys/fs/cgroup",),
}
# Ends that `Restart=on-failure` does not count as failures (systemd.service(5)).
CLEAN_EXITS = (0, -1, -2, -13, -15)


class UnitDriver:
    """One unit that runs, and how often it was started (`num_starts`).

    `exits`: how its main process ended, each time: an exit code, or a signal as a negative number.

    A context: stopped at its end.
    """

    def __init__(self, harness: ClusterHarness, unit: str, *, instance: str = "") -> None:
        """`unit`: a file of deploy/. Its cluster.yaml is that of the harness."""
        parser = configparser.ConfigParser(interpolation=None)
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser.read_string((DEPLOY / unit).read_text())
        self.service = dict(parser["Service"])
        for key, value in self.service.items():
            known = KNOWN[key]
            assert known is None or value in known, f"{key}={value}: teach the driver"
        assert parser["Unit"]["StartLimitIntervalSec"] == "0", "the driver restarts without limit"
        self._harness = harness
        mapped = {
            "/opt/stoker/bin/stoker": STOKER,
            "/etc/stoker/cluster.yaml": str(harness.folder / "cluster.yaml"),
            "%i": instance,
        }
        command = [mapped.get(word, word) for word in self.service["ExecStart"].split()]
        self._command = [*self._confined(), *command]
        self.exits: list[int] = []
        self.num_starts = 0
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.stop()

    @property
    def pid(self) -> int:
        """The pid of the main process."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_down(self) -> bool:
        """Whether its process ended, and is not started again."""
        return self._thread is not None and not self._thread.is_alive()

    def start(self) -> None:
        """Start it, as `systemctl start` does."""
        self._stopping.clear()
        self._spawn()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it, as `systemctl stop` does: SIGTERM, and SIGKILL after TimeoutStopSec."""
        self._stopping.set()
        assert self._thread is not None
        kill(self.pid, 15)
        self._thread.join(float(self.service.get("TimeoutStopSec", "90")))
        if self._thread.is_alive():
            kill(self.pid)
            self._thread.join()

    def _confined(self) -> list[str]:
        """Return the words before the command that take from it what the unit takes."""
        words: list[str] = []
        paths = [path for key in READ_ONLY if key in self.service for path in READ_ONLY[key]]
        if paths and os.geteuid() == 0:
            # Made private by unshare: no mount here reaches the machine.
            binds = [f"mount --bind -o ro {path} {path}" for path in paths if Path(path).is_dir()]
            words += ["unshare", "--mount", "sh", "-ec", "\n".join([*binds, 'exec "$@"']), "sh"]
        if "NoNewPrivileges" in self.service:
            words += ["setpriv", "--no-new-privs"]
        assert not words or shutil.which("setpriv"), (
            "no setpriv; tests/install-tools.sh installs it"
        )
        return words

    def _spawn(self) -> None:
        with (self._harness.folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd="/",
                env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.num_starts += 1

    def _follow(self) -> None:
        prevented = [int(word) for word in self.service["RestartPreventExitStatus"].split()]
        while True:
            assert self._process is not None
            code = self._process.wait()
            if self.service["KillMode"] == "control-group":
                self._harness.kill_everything()
            self.exits.append(code)
            if code in CLEAN_EXITS or code in prevented:
                return
            if self._stopping.wait(float(self.service["RestartSec"])):
                return
            self._spawn()
