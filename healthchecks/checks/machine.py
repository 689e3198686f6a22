"""machine: memory and cores are all there and report no errors, disks call themselves sound, storage answers, nothing is left over.

It reads what the kernel counts, asks smartctl and the site's own program where there are any, and looks at each storage path.
Whatever may hang is a child of its own with a limit, and one that hangs is named: the rest is judged. What a tool cannot see here
is noted.
"""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

from healthchecks.check import Evidence, Judge, NodeFacts, Verdict
from healthchecks.commands import Ending, run_together
from healthchecks.declaration import CHOSEN, DEFINED, HealthCheck, at_least, at_most, none_of
from healthchecks.devices import smart
from healthchecks.devices.endings import how_it_ended
from healthchecks.devices.readings import counter
from healthchecks.devices.sysfs import Files, read_files
from runner.facts.specs.programs import module_command

NAME = "machine"
INTERRUPTS = Path("/proc/interrupts")
STORAGE_PROBE = module_command("healthchecks.devices.storage_probe")
# Of the check's deadline, for what runs side by side, and then for the disks.
COMMANDS_SHARE, DISKS_SHARE = 0.3, 0.2
LIMIT_SECONDS = 8.0
MAX_QUOTED_CHARACTERS = 200
PATTERNS = (
    "devices/system/edac/mc/mc*/ue_count",
    "devices/system/edac/mc/mc*/ce_count",
    "devices/system/edac/mc/mc*/seconds_since_reset",
    "devices/system/cpu/offline",
)
# Errors by which the storage itself does not answer; others may concern this process, or a path that is not there.
BROKEN = frozenset(
    {
        errno.EIO,
        errno.ENOTCONN,
        errno.ESTALE,
        errno.ENXIO,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ETIMEDOUT,
        errno.EREMOTEIO,
        errno.EUCLEAN,
    }
)
# File systems that are written to; others, such as images, are read-only by nature.
WRITABLE = (
    "ext",
    "xfs",
    "btrfs",
    "f2fs",
    "tmpfs",
    "nfs",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "fuse",
)
# Left over from a search for a fault, each slows down or serialises every run. Value -> what it does.
HARMFUL = {
    "CUDA_LAUNCH_BLOCKING": "1",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_IB_DISABLE": "1",
    "NCCL_DEBUG": "TRACE",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
}
CONFIGURED = ("NCCL_", "TORCH_NCCL_", "RCCL_", "CUDA_LAUNCH_", "TORCH_DISTRIBUTED_DEBUG")
NCCL_FILES = ("/etc/nccl.conf", "~/.nccl.conf")
# The program of the site did not begin.
NOT_STARTED = (126, 127)


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Look at everything, what may hang in children."""
    files = read_files(node, PATTERNS)
    limit = min(LIMIT_SECONDS, COMMANDS_SHARE * node.deadline_seconds)
    commands: dict[str, tuple[str, ...]] = {
        path: (*STORAGE_PROBE, path) for path in dict.fromkeys((*node.folders, *node.storage))
    }
    if node.site_script:
        commands["site script"] = (node.site_script,)
    endings = run_together(commands | {"smartctl": smart.SCAN}, limit)
    evidence = (
        *_memory_errors(files, judge),
        _machine_checks(judge),
        *_size(files, node, judge),
        _read_only(judge),
        *(
            _storage(path, endings[path], limit=limit, judge=judge)
            for path in commands
            if path != "site script"
        ),
        *_disks(endings["smartctl"], node, limit=limit, judge=judge),
        *_variables(judge),
        *(
            _site_script(node.site_script, endings[name], limit=limit, judge=judge)
            for name in commands
            if name == "site script"
        ),
    )
    return Verdict(check=NAME, evidence=evidence, trouble=files.trouble)


def _memory_errors(files: Files, judge: Judge) -> Iterator[Evidence]:
    """Judge what each memory controller counted since its counters were reset, corrected errors as a rate."""
    controllers = list(files.matching("devices/system/edac/mc/mc*/ue_count"))
    if not controllers:
        for name in ("machine.uncorrected_errors", "machine.corrected_errors_per_hour"):
            yield Evidence(name=name, value=None, note="the kernel counts none on this machine")
    for path in controllers:
        folder = path.removesuffix("/ue_count")
        subject = folder.rpartition("/")[2]
        uncorrected = counter(files.number(path))
        note = uncorrected.trouble or ("" if uncorrected.value is not None else "not reported")
        yield judge("machine.uncorrected_errors", uncorrected.value, subject=subject, note=note)
        corrected = counter(files.number(f"{folder}/ce_count"))
        seconds = files.number(f"{folder}/seconds_since_reset").value
        # A counter that has run for less than an hour is taken as one of an hour.
        hours = max(1.0, (seconds or 0.0) / 3600)
        rate = None if corrected.value is None else corrected.value / hours
        note = corrected.trouble or ("" if corrected.value is not None else "not reported")
        yield judge("machine.corrected_errors_per_hour", rate, subject=subject, note=note)


def _machine_checks(judge: Judge) -> Evidence:
    """Count machine check exceptions since the boot, by the interrupts of all processors."""
    name = "machine.machine_checks"
    try:
        lines = INTERRUPTS.read_text().splitlines()
    except OSError as error:
        return judge(name, None, subject=str(INTERRUPTS), note=str(error))
    for line in lines:
        label, _, rest = line.partition(":")
        if label.strip() == "MCE":
            counts = [word for word in rest.split() if word.isdecimal()]
            return judge(name, sum(map(int, counts)) if counts else None, note=rest.strip()[-40:])
    return Evidence(name=name, value=None, note="this kernel counts none")


def _size(files: Files, node: NodeFacts, judge: Judge) -> Iterator[Evidence]:
    memory, cores = psutil.virtual_memory().total, len(os.sched_getaffinity(0))
    yield Evidence(name="machine.memory_bytes", value=memory, unit="bytes", better="higher")
    yield Evidence(name="machine.cores", value=cores, better="higher")
    offline = files.text("devices/system/cpu/offline")
    if node.memory_bytes:
        note = f"{memory} of {node.memory_bytes} bytes"
        yield judge("machine.memory_ratio", memory / node.memory_bytes, note=note)
    if node.num_cores:
        note = f"{cores} of {node.num_cores}" + (f"; offline: {offline}" if offline else "")
        yield judge("machine.cores_ratio", cores / node.num_cores, note=note)


def _read_only(judge: Judge) -> Evidence:
    """Count file systems that are mounted for writing and have become read-only, as after an error."""
    name, found = "machine.read_only_mounts", []
    try:
        text = Path("/proc/self/mountinfo").read_text(errors="replace")
    except OSError as error:
        return judge(name, None, note=str(error))
    for line in text.splitlines():
        # Fields: ids, device, root, path, options, optional ones, "-", type, source, options of the file system.
        own, separator, system = line.partition(" - ")
        fields, of_system = own.split(), system.split()
        if not separator or len(fields) < 6 or len(of_system) < 3:
            return judge(name, None, note=f"{line[:80]!r} is not understood")
        is_writable = "rw" in fields[5].split(",") and of_system[0].startswith(WRITABLE)
        if is_writable and "ro" in of_system[2].split(","):
            found.append(fields[4])
    return judge(name, len(found), note=", ".join(found))


def _storage(path: str, ending: Ending | OSError, *, limit: float, judge: Judge) -> Evidence:
    """Judge how long the storage behind a path took to answer; one that answers with an error is broken."""
    name = "machine.storage_seconds"
    if isinstance(ending, OSError):
        return judge(name, None, subject=path, note=f"the probe could not be started: {ending}")
    part = "its start"
    for line in ending.output.decode(errors="replace").splitlines():
        try:
            answer = json.loads(line)
            if "seconds" in answer:
                return judge(name, float(answer["seconds"]), subject=path)
            if "error" in answer:
                value = 1 if answer["errno"] in BROKEN else None
                note = f"{answer['error']} in {part}"
                return judge("machine.storage_errors", value, subject=path, note=note)
            part = str(answer["part"])
        except (ValueError, LookupError, TypeError):
            break
    note = f"{how_it_ended(ending, limit) or 'half an answer'} in {part}"
    return judge(name, None, subject=path, note=note)


def _disks(
    ending: Ending | OSError, node: NodeFacts, *, limit: float, judge: Judge
) -> Iterator[Evidence]:
    name = "machine.failing_disks"
    if isinstance(ending, OSError):
        yield Evidence(name=name, value=None, note="smartctl is not installed")
        return
    try:
        if ending.hung:
            raise ValueError(how_it_ended(ending, limit))
        disks = smart.parse_scan(ending.output)
    except ValueError as error:
        yield judge(name, None, subject="smartctl", note=str(error))
        return
    survey = smart.survey(disks, min(LIMIT_SECONDS, DISKS_SHARE * node.deadline_seconds))
    for disk in survey.devices:
        sound, warning = disk.last("sound"), disk.last("critical_warning")
        if sound.is_absent:
            yield Evidence(name=name, value=None, subject=disk.name, note=sound.text)
        elif sound.value is None:
            yield judge(name, None, subject=disk.name, note=sound.trouble)
        else:
            bad = sound.value == 0 or bool(warning.value)
            note = f"passed: {bool(sound.value)}, critical warning {warning.value or 0:.0f}"
            yield judge(name, float(bad), subject=disk.name, note=note)
        for key in ("media_errors", "percentage_used"):
            value = disk.last(key).value
            yield Evidence(name=f"machine.{key}", value=value, subject=disk.name, better="lower")


def _variables(judge: Judge) -> Iterator[Evidence]:
    """Count settings that a search for a fault left in the environment or in NCCL's files."""
    settings = dict(_of_files())
    settings |= {name: value for name, value in os.environ.items() if name.startswith(CONFIGURED)}
    harmful = sorted(name for name, value in settings.items() if HARMFUL.get(name) == value.upper())
    note = ", ".join(f"{name}={settings[name]}" for name in harmful)
    yield judge("machine.leftover_variables", len(harmful), note=note)
    every = ", ".join(f"{name}={settings[name]}" for name in sorted(settings))
    yield Evidence(
        name="machine.nccl_variables", value=len(settings), note=every[:MAX_QUOTED_CHARACTERS]
    )


def _of_files() -> Iterator[tuple[str, str]]:
    for name in NCCL_FILES:
        try:
            lines = Path(name).expanduser().read_text(errors="replace").splitlines()
        except (OSError, RuntimeError):
            continue
        for line in lines:
            key, found, value = line.partition("=")
            if found and not key.lstrip().startswith("#"):
                yield key.strip(), value.strip()


def _site_script(script: str, ending: Ending | OSError, *, limit: float, judge: Judge) -> Evidence:
    name = "machine.site_script_code"
    if isinstance(ending, OSError):
        return judge(name, None, subject=script, note=f"it cannot be started: {ending}")
    lines = (ending.output + ending.errors).decode(errors="replace").strip().splitlines()
    last = lines[-1][:MAX_QUOTED_CHARACTERS] if lines else ""
    if ending.hung or ending.code is None or ending.code < 0 or ending.code in NOT_STARTED:
        note = f"{how_it_ended(ending, limit)} {last}".strip()
        return judge(name, None, subject=script, note=note)
    return judge(name, ending.code, subject=script, note=last)


CHECK = HealthCheck(
    name=NAME,
    position=65,
    run=check,
    needs=(
        "folders",
        "memory_bytes",
        "num_cores",
        "site_script",
        "storage",
        "sysfs",
    ),
    limits={
        "machine.uncorrected_errors": none_of("errors"),
        "machine.corrected_errors_per_hour": at_most(100, "errors", CHOSEN, most=1e9),
        "machine.machine_checks": none_of("exceptions"),
        "machine.memory_ratio": at_least(
            0.97, "ratio", "LBNL nhc: 3 % tolerance; a lost module is more", least=0.1, most=1
        ),
        "machine.cores_ratio": at_least(1, "ratio", DEFINED, least=0.1, most=1),
        "machine.read_only_mounts": none_of("mounts"),
        "machine.storage_seconds": at_most(5, "seconds", CHOSEN, most=600, least=1e-6),
        "machine.storage_errors": none_of("errors"),
        "machine.failing_disks": none_of("disks", "SMART: the disk's own verdict"),
        "machine.leftover_variables": at_most(
            0,
            "variables",
            CHOSEN,
            most=100,
            way_out="unset them in the environment of the agent and in /etc/nccl.conf",
        ),
        "machine.site_script_code": at_most(0, "code", "the site's own program", most=255),
    },
)
