"""Launching gangs of ranks from tests, and reading their output."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 100.0
# Settings of a model that trains a step in milliseconds.
SMALL: dict[str, Any] = {
    "recipe": "tiny_cpu",
    "model": {"layers": 2, "width": 32, "heads": 2, "ffn_width": 64, "sequence": 16},
    "batch": {"global_batch": 12, "micro_batch": 2},
    "optimizer": {"warmup_steps": 2, "decay_steps": 100},
    "checkpoint_every": 0,
    "validate_every": 0,
}


@dataclass(frozen=True)
class Layout:
    """A layout under test."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.tensor * self.pipeline * self.data

    @property
    def settings(self) -> dict[str, int]:
        """Return the layout in the form of the trainer's settings."""
        return {"tensor": self.tensor, "pipeline": self.pipeline, "data": self.data}

    def __str__(self) -> str:
        return f"pp{self.pipeline}-dp{self.data}-tp{self.tensor}"


LAYOUTS = (
    Layout(),
    Layout(tensor=2),
    Layout(pipeline=2),
    Layout(data=2),
    Layout(tensor=2, pipeline=2),
    Layout(tensor=2, pipeline=2, data=2),
)
THREE_D = LAYOUTS[-1]


@dataclass(frozen=True)
class Ended:
    """How a gang ended: exit codes and reports by rank, and the folder with their output."""

    exit_codes: list[int]
    reports: list[list[dict[str, Any]]]
    output: Path
    timed_out: bool
    frozen_seconds: float

    def of_kind(self, kind: str, rank: int = 0) -> list[dict[str, Any]]:
        """Return one rank's reports of a kind, in order."""
        return [report for report in self.reports[rank] if report["kind"] == kind]

    def steps(self, rank: int = 0) -> dict[int, dict[str, Any]]:
        """Return one rank's step reports by step."""
        return {report["step"]: report for report in self.of_kind("step", rank)}

    def values(self, name: str, rank: int = 0) -> list[float]:
        """Return one field of one rank's step reports, in order."""
        return [float(report[name]) for report in self.of_kind("step", rank)]

    def errors(self) -> str:
        """Return what all ranks wrote to their standard error."""
        return "\n".join(path.read_text() for path in sorted(self.output.glob("rank*.err")))


@dataclass
class Gangs:
    """The fork server's client: runs one gang at a time."""

    server: subprocess.Popen[str]
    folder: Path
    count: int = field(default=0)

    def run(
        self,
        settings: Mapping[str, Any],
        *,
        layout: Layout,
        environment: Mapping[str, str] | None = None,
        requests: Sequence[Mapping[str, Any]] = (),
        freeze: Mapping[str, int] | None = None,
        expect: int | None = 0,
        patience_seconds: float = 0.0,
        timeout_seconds: float = TIMEOUT_SECONDS,
        body: str = "trainer.cli",
    ) -> Ended:
        """Run a gang to its end; all ranks must end with code `expect` (None: any).

        `freeze` stops a rank after a step; the first other rank to give up ends the gang, and
        `frozen_seconds` says after how long. `patience_seconds`: how long ranks are let be when one
        has failed, for those that are to end by themselves. `body`: a module whose `main` ranks run.
        """
        self.count += 1
        output = self.folder / f"gang{self.count}"
        output.mkdir()
        job = {
            "ranks": layout.world_size,
            "body": body,
            "arguments": ["--settings-json", json.dumps({**settings, "layout": layout.settings})],
            "environment": dict(environment or {}),
            "requests": list(requests),
            "freeze": freeze,
            "output": str(output),
            "timeout_seconds": timeout_seconds,
            "patience_seconds": patience_seconds,
        }
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(job) + "\n")
        self.server.stdin.flush()
        answer = self.server.stdout.readline()
        assert answer, "the fork server is gone"
        ended = Ended(output=output, **json.loads(answer))
        assert not ended.timed_out, ended.errors()
        if expect is not None:
            assert ended.exit_codes == [expect] * layout.world_size, ended.errors()
        return ended


def start_server(folder: Path) -> Gangs:
    """Start the fork server and wait until it has imported everything."""
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("fork_server.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    assert server.stdout is not None
    assert json.loads(server.stdout.readline()) == {"ready": True}
    return Gangs(server, folder)


def stop_server(gangs: Gangs) -> None:
    """End the fork server and wait for it."""
    assert gangs.server.stdin is not None
    gangs.server.stdin.close()
    gangs.server.wait(timeout=30)
    assert gangs.server.stdout is not None
    gangs.server.stdout.close()
