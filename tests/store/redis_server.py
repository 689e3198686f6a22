"""A real Redis server for tests: started in a folder of its own on a free port, killed, paused and started again by pid."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import redis

from runner.facts.specs.cluster import StoreSpec

DEPLOYED = Path(__file__).parents[2] / "deploy"
USER, PASSWORD = "stoker", "open-sesame-0123"
ADMIN_PASSWORD = "look-after-0123"
# The narrower users, by role: agents, commands, and programs that only read.
ROLES = {role: f"stoker-{role}" for role in ("agent", "command", "read")}
# A loaded machine takes its time.
START_SECONDS = 30.0
# Likewise; the deadline of handles in tests where no server is stopped.
CALL_SECONDS = 20.0


class NoRedis(Exception):
    """There is no redis-server to start."""


class RedisServer:
    """One server with the settings of deploy/redis.conf. `acl`: the users of deploy/users.acl, for cluster `cluster`.

    `settings`: further lines of its configuration, which win. `bind`: addresses to listen on. `prefix`: what the server is
    started with, such as ("taskset", ...). `program`: another release's. A context: stopped at its end.
    """

    def __init__(
        self,
        folder: Path,
        *,
        tls: bool = False,
        acl: bool = False,
        cluster: str = "*",
        bind: tuple[str, ...] = ("127.0.0.1",),
        settings: Mapping[str, str] | None = None,
        prefix: tuple[str, ...] = (),
        program: str = "redis-server",
    ) -> None:
        """Write the configuration; `start` starts it."""
        if shutil.which(program) is None:
            raise NoRedis("there is no redis-server; deploy/install-redis.sh installs one")
        self.folder, self.tls, self.acl, self.bind = folder.absolute(), tls, acl, bind
        self.port = free_port(bind[0])
        self.address = f"{bind[0]}:{self.port}"
        self._command = (*prefix, program)
        self._settings = dict(settings or {})
        self._log_from = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.folder.mkdir(parents=True, exist_ok=True)
        if acl:
            users = (DEPLOYED / "users.acl").read_text().replace("NAME", cluster)
            passwords = {USER: PASSWORD, "admin": ADMIN_PASSWORD}
            passwords |= {user: role_password(role) for role, user in ROLES.items()}
            for user, password in passwords.items():
                users = users.replace(f"user {user} on resetpass", f"user {user} on >{password}")
                name = "password" if user == USER else user.removeprefix("stoker-")
                write_secret(self.folder / name, password)
            (self.folder / "users.acl").write_text(users)
        if tls:
            make_certificates(self.folder, addresses=bind)
        self.write_settings()

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.stop()

    @property
    def pid(self) -> int:
        """The server's pid."""
        assert self._process is not None
        return self._process.pid

    def spec(self, *, role: str = "", **other: object) -> StoreSpec:
        """Return the store's section of cluster.yaml for supervisors or one of ROLES, with `other` fields instead."""
        fields: dict[str, object] = {"address": self.address}
        if self.acl:
            path = self.folder / (role or "password")
            fields |= {"user": ROLES[role] if role else USER, "password_file": str(path)}
        if self.tls:
            fields |= {"tls": True, "ca_file": str(self.folder / "ca.crt")}
            fields |= {"certificate_file": str(self.folder / "client.crt")}
            fields |= {"key_file": str(self.folder / "client.key")}
        return StoreSpec(**(fields | other))  # type: ignore[arg-type]

    def client(self) -> redis.Redis:
        """Return another program's client, which may do everything; it knows nothing of stores."""
        more: dict[str, object] = {}
        if self.acl:
            more |= {"username": "admin", "password": ADMIN_PASSWORD}
        if self.tls:
            more |= {"ssl": True, "ssl_ca_certs": str(self.folder / "ca.crt")}
            more |= {"ssl_certfile": str(self.folder / "client.crt")}
            more |= {"ssl_keyfile": str(self.folder / "client.key")}
        return redis.Redis(host=self.bind[0], port=self.port, socket_timeout=30, **more)  # type: ignore[arg-type]

    def write_settings(self, **more: str) -> None:
        """Write the configuration, `more` settings with it (`_` for `-`); they count from the next start."""
        self._settings |= {name.replace("_", "-"): value for name, value in more.items()}
        settings = {
            "dir": str(self.folder),
            "bind": " ".join(self.bind),
            "port": "0" if self.tls else str(self.port),
            "logfile": str(self.folder / "redis.log"),
            "daemonize": "no",
        }
        if set(self.bind) - {"127.0.0.1", "::1"}:
            settings["protected-mode"] = "no"
        if self.acl:
            settings["aclfile"] = str(self.folder / "users.acl")
        if self.tls:
            settings |= {"tls-port": str(self.port), "tls-auth-clients": "yes"}
            settings |= {"tls-cert-file": str(self.folder / "server.crt")}
            settings |= {"tls-key-file": str(self.folder / "server.key")}
            settings |= {"tls-ca-cert-file": str(self.folder / "ca.crt")}
        lines = [f'include "{DEPLOYED / "redis.conf"}"']
        lines += [f"{name} {value}" for name, value in (settings | self._settings).items()]
        (self.folder / "redis.conf").write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        """Start it, and wait until it lets clients in."""
        self._log_from = 0
        self._log_from = len(self._log())
        self._process = subprocess.Popen(
            [*self._command, str(self.folder / "redis.conf")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Ctrl-C is for the tests, which then stop it
            process_group=0,
        )
        until = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise RuntimeError(f"redis-server did not start: {self._log()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End it by SIGTERM."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it by SIGKILL, in the middle of its work."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop it in its tracks."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Kill it, and start it with what is on its disk."""
        self.kill()
        self.start()

    def drop_data(self) -> None:
        """Remove everything on its disk; only while it is not running."""
        assert self._process is None
        shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)

    def has_ended(self) -> bool:
        """Whether it ended by itself."""
        return self._process is None or self._process.poll() is not None

    def wait(self, timeout_seconds: float) -> int:
        """Wait until it has ended by itself."""
        assert self._process is not None
        return self._process.wait(timeout_seconds)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(number)
        try:
            process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _answers(self) -> bool:
        """Whether it has opened its port and loaded its files, by its log, without a password."""
        return "Ready to accept connections" in self._log()

    def _log(self) -> str:
        path = self.folder / "redis.log"
        return path.read_text(errors="replace")[self._log_from :] if path.exists() else ""


def role_password(role: str) -> str:
    """Return the password of the user of one of ROLES."""
    return f"{role}-sesame-0123"


def free_port(host: str) -> int:
    """Return a free port."""
    with socket.socket() as listener:
        try:
            listener.bind((host, 0))
        except OSError:
            # an address of a namespace that we are not in
            listener.bind(("", 0))
        return int(listener.getsockname()[1])


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner reads."""
    path.touch(mode=0o600)
    path.write_text(text + "\n")


def make_certificates(folder: Path, *, addresses: tuple[str, ...], days: int = 30) -> None:
    """Make an authority and certificates by it: server.crt for `addresses`, client.crt, and one that has expired of each."""
    names = ",".join(f"IP:{address}" for address in addresses)
    _openssl(folder, "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days", str(days),
             "-keyout ca.key -out ca.crt -subj /CN=test-authority")  # fmt: skip
    for name, dates in (
        ("server", f"-days {days}"),
        ("client", f"-days {days}"),
        ("expired", "-not_before 20200101000000Z -not_after 20200102000000Z"),
    ):
        make_certificate(folder, name, names=names, dates=dates)


def make_certificate(folder: Path, name: str, *, names: str, dates: str) -> None:
    """Make NAME.key and NAME.crt, signed by the folder's authority."""
    _openssl(folder, "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes", f"-keyout {name}.key",
             f"-out {name}.csr -subj /CN={name}")  # fmt: skip
    (folder / "names.ext").write_text(f"subjectAltName={names}\n")
    if "-not_before" in dates:
        # `openssl x509` of version 3.0 cannot date back; `openssl ca` can.
        (folder / "ca.txt").write_text("")
        (folder / "ca.srl").write_text("1000\n")
        (folder / "ca.cnf").write_text(
            "[ca]\ndefault_ca=c\n[c]\ndatabase=ca.txt\nserial=ca.srl\nnew_certs_dir=.\ndefault_md=sha256\npolicy=p\n"
            "[p]\ncommonName=supplied\n"
        )
        start, end = "20200101000000Z", "20200102000000Z"
        _openssl(folder, "ca -batch -config ca.cnf -cert ca.crt -keyfile ca.key -extfile names.ext",
                 f"-startdate {start} -enddate {end} -in {name}.csr -out {name}.crt -notext")  # fmt: skip
    else:
        _openssl(folder, "x509 -req -CA ca.crt -CAkey ca.key -CAcreateserial -extfile names.ext", dates,
                 f"-in {name}.csr -out {name}.crt")  # fmt: skip


def _openssl(folder: Path, *words: str) -> None:
    arguments = [word for some in words for word in some.split()]
    done = subprocess.run(
        ["openssl", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"openssl {' '.join(arguments)}: {done.stderr}")
