"""Files in which the kernel shows its devices, read in a child with a deadline."""

import fnmatch
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from healthchecks.check import NodeFacts
from healthchecks.commands import Ending, run_until
from healthchecks.devices.endings import how_it_ended
from healthchecks.devices.readings import Reading, number
from runner.facts.specs.programs import module_command

PROBE = module_command("healthchecks.devices.sysfs_probe")
# Of the check's deadline: the rest is for what else the check does.
SHARE = 0.4
LIMIT_SECONDS = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """What files held, by their paths below the root, in the order in which they were read.

    `trouble`: what hung or failed, so that the rest is missing.
    """

    series: Mapping[str, tuple[Reading, ...]]
    trouble: str = ""

    def matching(self, pattern: str) -> Iterator[str]:
        """Yield the paths that were found, sorted; `*` is a part of a path."""
        parts = pattern.split("/")
        for path in sorted(self.series):
            own = path.split("/")
            if len(own) == len(parts) and all(map(fnmatch.fnmatchcase, own, parts)):
                yield path

    def all(self, path: str) -> tuple[Reading, ...]:
        """Return a file's texts, at least one reading; one that is not there is absent."""
        return self.series.get(path) or (Reading(trouble=self.trouble),)

    def text(self, path: str) -> str:
        """Return a file's newest text; "" for none."""
        return self.all(path)[-1].text

    def numbers(self, path: str) -> tuple[Reading, ...]:
        """Return a file's texts as numbers."""
        return tuple(
            each if each.trouble or not each.text else number(each.text) for each in self.all(path)
        )

    def number(self, path: str) -> Reading:
        """Return a file's newest number."""
        return self.numbers(path)[-1]


def files_command(
    node: NodeFacts, patterns: Sequence[str], num_samples: int, window_seconds: float
) -> tuple[str, ...]:
    """Return the command that reads all files below `node.sysfs` that match a pattern, so many times."""
    return (*PROBE, node.sysfs, str(num_samples), str(window_seconds), *patterns)


def files_of(ending: Ending | OSError, limit_seconds: float) -> Files:
    """Read what that command printed until it ended."""
    if isinstance(ending, OSError):
        return Files(series={}, trouble=f"the probe could not be started: {ending}")
    lines = ending.output.decode(errors="replace").splitlines()
    return parse_files(lines, ending=how_it_ended(ending, limit_seconds))


def read_files(
    node: NodeFacts,
    patterns: Sequence[str],
    *,
    num_samples: int = 1,
    window_seconds: float = 0.0,
    share: float = SHARE,
) -> Files:
    """Read all files below `node.sysfs` that match a pattern, so many times, within a share of the check's deadline."""
    limit = min(LIMIT_SECONDS, share * node.deadline_seconds)
    command = files_command(node, patterns, num_samples, window_seconds)
    try:
        return files_of(run_until(command, limit), limit)
    except OSError as error:
        return files_of(error, limit)


def parse_files(lines: Iterable[str], *, ending: str) -> Files:
    """Read what the probe printed; `ending` is how it ended, "" if in order."""
    series: dict[str, list[Reading]] = {}
    part, is_complete = "its start", False
    for line in lines:
        try:
            answer = json.loads(line)
            if "part" in answer:
                part = str(answer["part"])
            elif "end" in answer:
                is_complete = True
            else:
                reading = Reading(text=answer["text"], trouble=answer["trouble"])
                series.setdefault(answer["file"], []).append(reading)
        except (ValueError, LookupError, TypeError):
            break
    fixed = {path: tuple(readings) for path, readings in series.items()}
    trouble = "" if is_complete else f"{ending or 'half an answer'} in {part}"
    return Files(series=fixed, trouble=trouble)
