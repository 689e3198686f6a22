"""Slurm: its daemons, its commands, and the texts of its error numbers."""

import re
from collections.abc import Iterator

from tools.catalogues.c_source.calls import formats
from tools.catalogues.c_source.tokens import without_comments
from tools.catalogues.clusters.emitter import Emitter
from tools.catalogues.debian import SourceTree
from tools.catalogues.rows import Level, Row
from tools.catalogues.rules import Rule, first_rule, judged

_LEVELS: dict[str, Level] = {
    **dict.fromkeys(("error", "fatal", "fatal_abort"), "error"),
    "warning": "warning",
    **dict.fromkeys(("info", "verbose"), "info"),
    **dict.fromkeys(("debug", "debug2", "debug3", "debug4", "debug5", "log_flag"), "debug"),
}
# The word that `error` and `fatal` write before the text.
_ERROR_WORDS = ("error:", "fatal:")
_NUMBERS = re.compile(r'ERRTAB_ENTRY\((\w+)\)\s*,\s*((?:"(?:\\.|[^"\\])*"\s*)+)')

# What logs have unless someone asks for more.
_SHOWN: tuple[Level, ...] = ("error", "warning", "info")
_COMMANDS = ("src/srun/", "src/sbatch/", "src/salloc/", "src/api/", "src/common/slurm_opt")
_OPTIONS = (
    "src/srun/opt.c",
    "src/srun/multi_prog.c",
    "src/sbatch/opt.c",
    "src/sbatch/xlate.c",
    "src/salloc/opt.c",
    "src/common/slurm_opt.c",
    "src/common/proc_args.c",
    "src/common/read_config.c",
    "src/common/parse_",
    "src/common/slurm_resource",
    "src/common/cpu_frequency.c",
    "src/common/node_conf.c",
    "src/interfaces/gres.c",
    "src/plugins/gres",
    "src/slurmctld/read_config.c",
)

RULES = (
    Rule(
        r"DUE TO NODE FAILURE",
        "node_failure",
        "Slurm ends the job since it lost a node of it",
        scope="node",
    ),
    Rule(
        r"JOB NOT ENDING WITH SIGNALS|Kill task failed",
        "node_failure",
        "processes hang in the kernel, and Slurm takes the node out of service",
        scope="node",
    ),
    Rule(
        r"^(?:salloc: )?Job allocation %u has been revoked",
        "preemption",
        "the job's time is over, or an operator or the scheduler ended it; also at the end of an allocation that was left",
        paths=("src/salloc/", "src/srun/"),
        levels=_SHOWN,
    ),
    Rule(
        r"CANCELLED AT|time limit exhausted|DUE TO (?:TIME LIMIT|PREEMPTION|JOB REQUEUE)|has been revoked"
        r"|allocation .*(?:revoked|expired)|has expired|job time limit|(?<!waking )preempted \w+|preempt(?:ing|ed) %pJ"
        r"|Force Terminated|cancelled by interactive|has been cancelled",
        "preemption",
        "the job's time is over, or an operator or the scheduler ended it",
        paths=(
            "src/slurmd/",
            "src/srun/",
            "src/api/",
            "src/salloc/",
            "src/sbatch/",
            "src/slurmctld/",
        ),
        levels=_SHOWN,
        is_understated=True,
    ),
    Rule(
        r"^(?:ignoring|internal error)|RPC from|Security violation", "", "a message that is refused"
    ),
    Rule(
        r"^(?!.*(?:cannot|can't|unable|could not|not monitor|parse|disable)).*"
        r"(?:oom[-_ ]?kill|OOM Killed|Out Of Memory \(OOM\)|exceeded (?:virtual )?memory limit"
        r"|exceeded job memory|exceeded step memory)",
        "host_oom",
        "the job's control group, or the poll of its memory, reached its limit",
        levels=_SHOWN,
        paths=("src/interfaces", "src/plugins", "src/slurmd", "src/slurmctld"),
        layer="machine",
        scope="node",
        is_understated=True,
    ),
    Rule(
        r"^Node failure on|not responding|setting (?:DOWN|node %s to DOWN)|on failed node|failure of node"
        r"|unexpectedly rebooted|state set to DOWN|node %s .*(?:is down|went down)|lost communication"
        r"|io error on node|io error with slurmstepd|Cannot communicate with node"
        r"|test connection to node|waited too long for nodes",
        "node_failure",
        "the controller, or the command that started the step, does not reach the node any more",
        paths=("src/slurmctld/", "src/api/", "src/salloc/", "src/srun/"),
        levels=_SHOWN,
        scope="node",
        is_understated=True,
    ),
    Rule(
        r"prolog (?:or .* )?(?:fail|launch failure)|prolog failed|prolog/epilog failure|draining the node"
        r"|health_check failed|epilog failure|prolog .*timed? ?out|epilog error",
        "node_failure",
        "Slurm takes the node out of service when its prolog, epilog or health check fails",
        scope="node",
    ),
    Rule(
        r"credential|munge|clocks?\b|authentication|protocol_?version|incompatible version",
        "config_error",
        "keys, clocks or versions of the nodes differ",
        paths=(
            "src/plugins/auth",
            "src/plugins/cred",
            "src/interfaces/cred",
            "src/interfaces/auth",
            "src/slurmd",
            "src/common",
            "src/api",
        ),
        scope="user",
    ),
    Rule(
        r"execve|can ?not execute|chdir|couldn't find|no command|not found|No such|invalid|must be|mutually"
        r"|unable to (?:allocate resources|create step)|submission failed|bad |unrecognized|unknown|specif"
        r"|requires|can't (?:run|honor)|Job creation failure|not executable|unable to resolve|incompatible",
        "config_error",
        "what was asked for cannot be done as it was asked",
        paths=(*_COMMANDS, "src/slurmd/slurmstepd/task.c", "src/slurmd/slurmstepd/mgr.c"),
        scope="user",
    ),
    Rule(
        "",
        "config_error",
        "settings and options are read",
        paths=_OPTIONS,
        levels=("error",),
        scope="user",
    ),
    Rule(
        r"no space left|disk full|write .*failed|could not write|State ?Save ?Location",
        "filesystem",
        "a file of Slurm's own cannot be written",
        paths=("src/slurmctld", "src/slurmd"),
        scope="storage",
    ),
)

# By the name of the error number.
_OF_NUMBERS = (
    Rule(
        r"NODE_FAIL|NODE(?:S)?_(?:DOWN|NOT_AVAIL)|DOWN_NODE|UNREACHABLE",
        "node_failure",
        "of the number",
    ),
    Rule(
        r"^(?!.*(?:INVALID|MISSING|REQUIRED|LOOP|CANNOT)).*(?:TIME_?LIMIT|PREEMPT|EXPIRED_RESV)",
        "preemption",
        "of the number",
    ),
    Rule(r"CREDENTIAL|AUTH_CRED|CRED_|MUNGE|PROTOCOL_VERSION", "config_error", "of the number"),
    Rule(
        r"INVALID|ACCESS_DENIED|MISSING|BAD_|UNKNOWN|NOT_SUPPORTED|REQUESTED|TOO_MANY|QOS|ACCOUNT|PARTITION|"
        r"DISABLED|UNAVAIL|CONFIG|TOPOLOGY|SYNTAX|PATHNAME|DEPENDENCY|RESERVATION|LICENSE",
        "config_error",
        "of the number: what was asked for is refused",
        scope="user",
    ),
    Rule(
        r"EXECVE|OPEN|SETUP|SPAWN|UID|GID",
        "config_error",
        "of the number: the step could not start",
        scope="user",
    ),
)


def _level_of(name: str, arguments: list[str]) -> Level | None:
    plain = name.rpartition(".")[2].removeprefix("sched_").removeprefix("slurm_")
    if plain == "log_var" and arguments:
        return _LEVELS.get(arguments[0].removeprefix("LOG_LEVEL_").lower(), "debug")
    return "debug" if plain == "log_var" else _LEVELS.get(plain)


def _numbers(tree: SourceTree) -> Iterator[Row]:
    """Yield the texts of Slurm's error numbers, which commands write after their own."""
    for file in tree.files("src/common/slurm_errno.c"):
        text = without_comments(file.read_text(errors="replace"))
        for number, literals in _NUMBERS.findall(text):
            (meaning,) = formats(literals)
            row = Row(number, meaning, "error", requires=_ERROR_WORDS)
            yield judged(row, first_rule(_OF_NUMBERS, "", number, "error"))


SLURM = Emitter(
    "slurm",
    "Slurm",
    "slurm-wlm",
    "24.11.5",
    (
        "src/slurmctld",
        "src/slurmd",
        "src/srun",
        "src/sbatch",
        "src/salloc",
        "src/sattach",
        "src/api",
        "src/bcast",
        "src/common",
        "src/conmgr",
        "src/interfaces",
        "src/stepmgr",
        "src/plugins/auth",
        "src/plugins/cgroup",
        "src/plugins/cred",
        "src/plugins/gpu",
        "src/plugins/gres",
        "src/plugins/job_container",
        "src/plugins/jobacct_gather",
        "src/plugins/mpi",
        "src/plugins/preempt",
        "src/plugins/prep",
        "src/plugins/proctrack",
        "src/plugins/sched",
        "src/plugins/select",
        "src/plugins/switch",
        "src/plugins/task",
        "src/plugins/topology",
    ),
    level_of=_level_of,
    layer="scheduler",
    scope="scheduler",
    rules=RULES,
    daemons=("src/slurmctld", "src/slurmd/slurmd", "src/plugins", "src/stepmgr"),
    left_out=("test", "cray", "slurmdb", "hpe_slingshot/config", "fed_mgr", "front_end"),
    requires={"error": _ERROR_WORDS},
    tables=_numbers,
)
