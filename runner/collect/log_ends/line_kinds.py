"""Kinds of lines at the end of a log: progress of any form, errors, exits and signals, waiting, and ends that are well."""

import re
from typing import NamedTuple

from runner.collect.log_ends.error_levels import LEVEL, STACK_LINE
from runner.rootcause.log_ends import RAISED, SIGNAL_BASE
from runner.rootcause.missing_programs import is_refused
from runner.rootcause.statements import statement_of
from runner.rootcause.tracebacks.messages import is_message

# Signals, as <signal.h> of Linux numbers them; Python's own module differs by platform.
SIGNALS = {"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "BUS": 7, "FPE": 8}
SIGNALS |= {
    "KILL": 9,
    "SEGV": 11,
    "PIPE": 13,
    "ALRM": 14,
    "TERM": 15,
    "XCPU": 24,
    "XFSZ": 25,
    "SYS": 31,
}
# How shells and launchers name them.
_SIGNAL_WORDS = {
    "Killed": 9,
    "Terminated": 15,
    "Segmentation fault": 11,
    "Aborted": 6,
    "Abort trap": 6,
    "Bus error": 7,
    "Floating point exception": 8,
    "Illegal instruction": 4,
    "Segfault": 11,
    "Hangup": 1,
    "Alarm clock": 14,
    "File size limit exceeded": 25,
    "Cputime limit exceeded": 24,
    "CPU time limit exceeded": 24,
    # The same in other languages of glibc.
    "段错误": 11,
    "已杀死": 9,
    "已终止": 15,
    "已放弃": 6,
    "已中止": 6,
    "总线错误": 7,
    "浮点数例外": 8,
    "非法指令": 4,
    "Speicherzugriffsfehler": 11,
    "Getötet": 9,
    "Abgebrochen": 6,
    "Erreur de segmentation": 11,
    "Processus arrêté": 9,
    "Abandon": 6,
    "Violación de segmento": 11,
    "Terminado (killed)": 9,
    "Ошибка сегментирования": 11,
    "Убито": 9,
    "세그멘테이션 오류": 11,
    "죽었음": 9,
    "Segmentation fault (コアダンプ)": 11,
    "強制終了": 9,
}
_WORDS = "|".join(re.escape(word) for word in _SIGNAL_WORDS)
_SIGNAL = re.compile(
    rf"(?:^|: |\s)(?P<word>{_WORDS})(?: \(core dumped\)|: \d{{1,2}})?\s*(?:$|\S*python|[(（])"
    r"|\b(?:(?:killed|terminated|died|exited|ended|crashed|stopped) (?:by|with|on|due to|from)(?: a)? )?"
    r"(?:[Ss]ignal|SIGNAL)[ :#=]{1,3}(?P<number>\d{1,2})\b"
    r"|\bSIG(?P<name>HUP|INT|QUIT|ILL|TRAP|ABRT|BUS|FPE|KILL|SEGV|PIPE|TERM|XCPU|SYS)\b"
)
_EXIT = re.compile(
    r"(?i)\b(?:exit(?:ed|s|ing)?|return(?:ed|s)?|finished|terminated|failed|completed|died|ended)\b[^\n]{0,40}?"
    r"\b(?:code|status)\b(?: (?:is|was|of))?[ :=(]{1,3}(?P<code>-?\d{1,5})\b"
    r"|\bexit_?code['\"]?\s*[:=]\s*(?P<field>-?\d{1,5})\b|\bExitCode\W{1,3}(?P<slurm>\d{1,3}):\d"
    r"|\bcode=(?:exited|killed|dumped), status=(?P<systemd>\d{1,3})|\breturn(?:ed)?[ _-]?code\s*[:=]\s*(?P<returned>-?\d{1,5})"
    r"|\*\*\* \[[^\]]+\] Error (?P<make>\d{1,3})|^\[\d+\]\+?\s+Exit (?P<shell>\d{1,3})\b|\bExited \((?P<docker>\d{1,3})\)"
)
# Statements of services that ran a job.
_JOB_FAILED = re.compile(
    r"(?i)\b(?:job|run|training|experiment|workflow|trial|pipeline|task|replica)s?\b(?: \S{1,40}){0,3} (?:has |have |was )?failed"
    r"(?: with errors?)?(?:\s*[.!]?$|[.!:] )|\b(?:state|status|phase|result|conclusion)\b[\"']?\s*[:=]\s*[\"']?fail(?:ed"
    r"|ure)(?:_[a-z]+)*\b"
    # DeepSpeed's launcher, once one of its processes has failed or a person ends it.
    r"|\bsigkill_handler\] killing subprocess \d"
)
# What C libraries call the causes of failed calls, and shells the commands that they cannot run, at the end of a line.
_FAILED_CALL = re.compile(
    r": (?:cannot allocate memory|no space left on device|input/output error|stale (?:nfs )?file handle|disk quota exceeded"
    r"|read-only file system|too many open files(?: in system)?|transport endpoint is not connected|connection reset by peer"
    r"|connection refused|connection timed out|no route to host|network is (?:unreachable|down)|host is down|permission denied"
    r"|no such device(?: or address)?|exec format error|command not found|cannot execute(?: binary file)?|bus error|broken pipe"
    r"|device or resource busy|structure needs cleaning|cannot send after transport endpoint shutdown|remote i/o error)"
    r"(?: \(\d+\))?[.!]?\s*$",
    re.IGNORECASE,
)
# What a failed end reads like where no level is written.
_FAILURE = re.compile(
    r"(?i)\b(?:fail(?:ed|ure|s)|fatal|cannot|can't|could not|couldn't|unable to|refused|denied|abort(?:ed|ing)?|panic"
    r"|corrupt(?:ed|ion)?|timed out|time-?out|not found|exceeded|lost|unreachable|unavailable|not responding|dead|died"
    r"|crash(?:ed)?|killed|expired|evicted|preempted|out of memory|no such (?:file|key|object))\b"
    # argparse, before the line of the error.
    r"|^usage: \S+ \["
)
# Settings that are printed as one object: limits of time are no failures.
_SETTINGS = re.compile(
    r"^\s*\{(?!.*\"(?:msg|message|error|err|event|text|log|reason|exception|detail\w*)\" ?:).*\"\w*timeout\w*\" ?: ?[\d\"]"
)
# Of failures that a line counts as none, rules for, or lists.
_OF_NO_FAILURE = re.compile(
    r"(?i)\b(?:no|0|zero|without)(?: \w+)? (?:fail(?:ed|ures?)|errors?|lost|crash\w*|dead|killed|evict\w*|preempt\w*|time-?outs?)\b"
    r"|\bon[ _-](?:failure|preemption|eviction|oom|crash)\b| op=Exists\b|^\s*--?[a-z][\w-]*[ =]"
    r"|\b(?:exit|return|error|status) (?:codes|statuses|(?:code|status) meanings?): -?\d+ ?[=:(]? ?[a-z]"
    r"|\b(?:fail\w*|crash\w*|lost|dead|killed|evict\w*|preempt\w*|time-?outs?)[:=] ?(?:0|false|none|null)\b"
)
# Levels below a warning, and statements that others are at work.
_LOWER_LEVEL = re.compile(
    r"(?:^|[\s\[(|<:,])(?:INFO|DEBUG|TRACE|NOTICE|WARN|WARNING|[Ii]nfo|[Dd]ebug|[Ww]arn(?:ing)?)(?=[\s\])|>:,]|$)|^[IWDV]\d{4} "
    r"|\w+Warning\b|\b(?:level|severity|lvl)[\"']?\s*[=:]\s*[\"']?(?:info|debug|warn|trace)|(?:^|[\d\]:] )[IWDV] "
    r"(?:\d+ \d+\] |[\w./-]+\.\w{1,3}:\d+)"
)
# What the emitter itself calls survived, or not an error.
_SURVIVED = re.compile(
    r"(?i)\b(?:retry(?:ing)?|retries|ignor(?:ed|ing)|skipp(?:ed|ing)|recover(?:ed|ing)|continu(?:e|ed|ing)|fall(?:ing)?[ -]?back|"
    r"(?<!CCL )warn(?:ing)?|no errors?|0 errors?|errors?\s*[:=]\s*0|error (?:rate|bars?|margin)|resum(?:ed|ing)|non-fatal"
    r"|not fatal|corrected|correctable|proceed(?:s|ing)?|using .{1,40} instead)\b"
)
# An error at the last attempt was not.
_GIVEN_UP = re.compile(
    r"(?i)\b(?:giv(?:es?|ing|en) up|gave up|(?:retry|retries)\b.{0,30}\b(?:failed|exhausted|exceeded)"
    r"|(?:after|all|max(?:imum)?) (?:\d{1,6} )?(?:retry|retries|attempts))\b"
)
_WELL = re.compile(
    r"(?i)\b(?:training|job|run|process|script|experiment|all (?:ranks|workers|processes))\b.{0,40}"
    r"\b(?:complet(?:ed?|ion)|finished|done|succeeded)\b(?!.{0,30}(?:code|status) [1-9-])"
    r"|\bcompleted successfully\b|\bfinished successfully\b"
    r"|^\s*(?:Done|Finished)[.!]?\s*$|\bexit(?:ed|s|ing)?\b.{0,30}\b(?:code|status)[ :=]{1,2}0\b|\bState: COMPLETED\b"
)
_WAITING = re.compile(
    r"(?i)\b(?:still (?:waiting|running|blocked|hanging)|wait(?:ing|ed) (?:for|on|at|in)|"
    r"no (?:progress|new step|heartbeat|response)|not (?:made|making) (?:any )?progress|has not (?:responded|reported|advanced)|"
    r"stuck|hung|stalled|hang detected|"
    r"(?:is|been|has been) running (?:for|since)|blocked for|last (?:step|progress|heartbeat)\b.{0,30}\bago)\b"
)
# Ranks that have waited for their peers for a while, or try again to reach them, at the start of a run: torch's store, NCCL's and
# MPI's connections, TensorFlow's and Paddle's servers, Horovod, vLLM, Kubernetes.
_MEETING = re.compile(
    r"(?i)\bwaiting in store[ -]based barrier\b|\bstill waiting for response from worker\b|\bserver not ready, wait \d"
    r"|\bnot ready endpoints\b|\bwaiting for creating a placement group\b|\bwaiting for remaining peers\b|\bmissing ranks?: *\d"
    r"|\bconnect\w*\b.{0,80}\b(?:returned|failed|refused|unreachable|no route)\b.{0,80}\b(?:retry(?:ing)?|attempt)\b"
    r"|\b(?:client socket|store|rendezvous)\b.{0,120}\b(?:will retry|retrying)\b|\bwaiting for \S{0,40}(?:rendezvous|pmix|pmi\d?)\b"
    r"|\bwaiting for (?:all |the )?(?:other |remaining |more )?(?:\d+ )?(?:\w+ )?(?:nodes|workers|ranks|peers|processes|hosts)"
    r" to (?:join|connect|register|start|come|arrive|be ready|become ready)\b"
    r"|\bnslookup: can't resolve\b|\bwaiting for (?:the )?(?:master|head|chief|coordinator|leader)(?: node| pod)?\W*$"
    r"|\b0/\d+ nodes are available\b|\btraining has not started in the last \d|\bno quorum, only have \d+ participants?, need \d"
    # Lightning: each rank once, so that two nodes that write the same one will not meet.
    r"|\binitializing (?:ddp|distributed|deepspeed)\w*: GLOBAL_RANK: \d+, MEMBER: \d+/\d+"
    # A client of torch's store, whose server has not answered within the timeout.
    r"|\bwaitForInput: (?=(?:poll for )?socket\b.{0,300}\b(?:timed out|timeout)\b)"
)
# That peers came for which others waited.
_MET = re.compile(
    r"(?i)\b(?:complet(?:ed?|ion)|success(?:ful(?:ly)?)?|joined|assigned|started|established|connected|initiali[sz]ed|ready"
    r"|arrived|registered)\b"
)
# Dumps of stacks of processes that go on: py-spy, and faulthandler after a timeout; debuggers that were attached, pystack,
# elfutils, the JVM on request, the kernel's stack of a process, strace of one that waits, kernels of NCCL that run.
_STACKS = re.compile(
    r"^Thread (?:\d+ |0x[\dA-Fa-f]+ )?\((?:active|idle|active\+gil)\)|^Timeout \(\d+:\d\d:\d\d\)!"
    r"|^#* ?ProcessID=\d+, ThreadID=\d|^Process \d+: .*\bpython"
    r"|^Thread \d+ \((?:Thread 0x[0-9a-f]+ \()?LWP \d+\)|^TID \d+:\s*$|^Traceback for thread \d+ \(|^Full thread dump \S"
    r"|^\[<0>\] \w+(?:\+0x|\s*$)|^(?:\[pid +\d+\] )?futex\(0x[0-9a-f]+, FUTEX_WAIT\w*,"
    r"|^\((?:cuda-|roc)?gdb\) (?:bt|backtrace|thread apply|info cuda kernels)\b|^\(lldb\) (?:bt|thread backtrace)\b"
    r"|^\*? +\d+ +- +\d+ +\d+ Active .{0,60}\bnccl\w*Kernel|^\$ (?:sudo )?py-spy dump\b"
)
# In stacks of debuggers: the process had ended itself.
_ABORTED = re.compile(
    r"^#\d+ +(?:0x[0-9a-f]+ in )?(?:(?:__GI_)?(?:raise|abort)|__pthread_kill\w*|std::terminate|__assert_fail\w*) ?\("
    r"|^#\d+ +<signal handler called>"
)
_PROGRESS = re.compile(
    r"\b(?P<done>\d{1,12})/(?P<total>\d{1,12}) \[\d|(?P<bar>\d{1,3})%\|"
    r"|[\[(]\s*(?P<done2>\d{1,12})\s*/\s*(?P<total2>\d{1,12})\s*[\])]"
    r"|(?i:\b(?:epoch|step|iter(?:ation)?|batch|update|round|global_step)s?\b['\"]?\s*[:=#\[(]{0,2}\s*)(?P<done3>\d{1,12})"
    r"(?:\s*(?:/|of)\s*(?P<total3>\d{1,12}))?|(?:^|[\s\[(])(?P<percent>\d{1,3})(?:\.\d+)?\s?%"
    r"|(?:^|[\s\]])(?P<done4>\d{1,12})/(?P<total4>\d{1,12})\s+[━\[]"
)


class Kind(NamedTuple):
    """What a line is. `code`, `signal`: of an exit. `is_complete`: of progress. `words`: in which a rank waits for its peers."""

    name: str
    code: int | None = None
    signal: int | None = None
    is_complete: bool = False
    words: str = ""


OTHER = Kind("other")


def kind_of(text: str, *, reads_statements: bool = False) -> Kind:
    """Return what a line of a program, without its wrapping, is. `reads_statements`: whether plain words may state a fault."""
    if _STACKS.search(text):
        return Kind("stacks")
    left = Kind("exit", signal=6) if _ABORTED.search(text) else _exit_of(text)
    if left is not None:
        return left
    is_survived = _is_survived(text)
    is_error = LEVEL.search(text) is not None and not is_survived
    if not is_error and (waiting := _MEETING.search(text)) is not None:
        return Kind("meeting", words=waiting[0])
    if LEVEL.search(text):
        return OTHER if is_survived else Kind("error")
    is_refusal = not is_survived and not _LOWER_LEVEL.search(text)
    if is_refusal and (_FAILED_CALL.search(text) or is_refused(text)):
        return Kind("failed-call")
    if STACK_LINE.match(text):
        return Kind("stack")
    if reads_statements and not _LOWER_LEVEL.search(text) and statement_of(text) is not None:
        return Kind("statement")
    if _WAITING.search(text):
        return Kind("waiting")
    if _WELL.search(text):
        return Kind("well")
    match = _PROGRESS.search(text)
    if match is not None:
        return Kind("progress", is_complete=_is_complete(match))
    is_failure = (
        (_FAILURE.search(text) or RAISED.search(text) or is_message(text))
        and not is_survived
        and not _LOWER_LEVEL.search(text)
        and not _SETTINGS.search(text)
        and not _OF_NO_FAILURE.search(text)
    )
    if is_failure:
        return Kind("failure")
    return Kind("met") if _MET.search(text) else OTHER


def _is_survived(text: str) -> bool:
    return _SURVIVED.search(text) is not None and _GIVEN_UP.search(text) is None


def _exit_of(text: str) -> Kind | None:
    if _is_survived(text):
        return None
    match = _EXIT.search(text)
    if match is not None:
        code = int(next(value for value in match.groups() if value is not None))
        signal = -code if code < 0 else code - SIGNAL_BASE if code > SIGNAL_BASE else None
        is_signal = signal is not None and signal in SIGNALS.values()
        return Kind(
            "well" if code == 0 else "exit", code=code, signal=signal if is_signal else None
        )
    if _JOB_FAILED.search(text) and not _LOWER_LEVEL.search(text):
        return Kind("exit")
    match = _SIGNAL.search(text)
    if match is None or _ABOUT_SIGNALS.search(text):
        return None
    if match["word"]:
        return Kind("exit", signal=_SIGNAL_WORDS[match["word"]])
    number = int(match["number"]) if match["number"] else SIGNALS[match["name"]]
    return Kind("exit", signal=number)


# Lines about handlers of signals, about signals that others are sent, and states of containers, whose exit codes follow.
_ABOUT_SIGNALS = re.compile(
    r"(?i)^\s*(?:last )?state:|^\s*--?[a-z][\w-]*[ =]|handler|install|regist|will (?:be|exit|save)|on signal"
    r"|closing signal|\bsend(?:ing|s)?\b|\bignor"
)


def total_reached(text: str) -> int:
    """Return the total that progress in a line is at; 0: at none."""
    return next(
        (
            int(match[total])
            for match in _PROGRESS.finditer(text)
            for done, total in _PAIRS
            if match[done] is not None and match[done] == match[total]
        ),
        0,
    )


def is_last_epoch(text: str) -> bool | None:
    """Whether the last epoch that lines name is the last of all, as far as they say; None: they name none."""
    named = _EPOCH.findall(text)
    if not named:
        return None
    epoch, total = named[-1]
    return bool(total) and int(epoch) >= int(total)


_EPOCH = re.compile(
    r"(?i)\bepoch\b['\"]?\s*[:=#\[(]{0,2}\s*(\d{1,9})(?:\.\d+)?(?:\s*(?:/|of)\s*(\d{1,9}))?"
)
_PAIRS = (("done", "total"), ("done2", "total2"), ("done3", "total3"), ("done4", "total4"))


def _is_complete(match: re.Match[str]) -> bool:
    """Whether progress reached its total."""
    for done, total in _PAIRS:
        if match[done] is not None and match[total] is not None:
            return int(match[done]) >= int(match[total]) > 0
    share = match["bar"] or match["percent"]
    return share is not None and int(share) >= 100
