"""Notices of watchdogs, of launchers and of people that ranks stopped making steps, and deadlocks that a runtime itself found."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_hang = partial(Signature, fault="hang_no_error", layer="collective", scope="rank")
_LONG = r"\d[\d.,:]{0,11} ?(?:s|sec|secs|seconds?|m|min|mins|minutes?|h|hr|hrs|hours?)\b"
_VERY_LONG = r"(?:\d{3,6}(?:\.\d+)? ?s\w*|\d{2,4}(?:\.\d+)? ?min\w*|\d{1,3}(?:\.\d+)? ?h\w*)"

HANGS = (
    _hang(
        "nothing-for-a-while",
        # Who has not done what for how long.
        r"\b(?:has|have|had|did) not (?:yet )?(?:logged|made|reported|advanced|progressed|updated|produced|printed|stepped|moved"
        r"|changed|finished|log|make|report|advance|progress|update|produce|print|finish)\b.{0,40} (?:in|for|within|since|after)"
        rf"(?: (?:the |over |more than |about |at least |last |past ){{0,3}}{_LONG})"
        rf"|\b[Nn]o (?:new )?(?:logs?|output|log (?:lines?|output|entries)|steps?|iterations?|training steps?|progress"
        r"|step progress|forward progress|activity|change in \S{1,80}|change of \S{1,80})\b(?: (?:was |were |has been "
        r"|have been )?(?:made|logged|seen|received"
        r"|completed"
        rf"|detected|observed|printed|reported))?(?: by \S{{1,40}}(?: \d+)?)? (?:for|in|within|since)"
        rf" (?:the |over |more than |about |at least |last |past ){{0,3}}{_LONG}"
        rf"|\b[Ll]ogs? (?:has |have )?stopped (?:updating|growing)|\b[Ll]ast change {_LONG} ago"
        rf"|\b[Ll]ast (?:step|progress|iteration|update|log line|output|activity) (?:was |seen |made |at )?{_VERY_LONG} ago"
        rf"|\b[Ll]ast (?:reported|logged|completed|finished) (?:step|iteration|batch|epoch)\b.{{0,30}} {_VERY_LONG} ago",
        source="watchdogs of trainers, launchers and clusters, in the words that people write",
        sample="watchdog: rank 4 has not logged a step in 1800s; stacks dumped to /tmp/stacks",
        near="watchdog: rank 4 has logged a step in 1.8s",
    ),
    _hang(
        "stuck-for-a-while",
        r"\b(?:hang|hangs|hanging|hung|stuck|stalled|deadlocked|blocked) (?:at|in|on) (?:the )?(?:step|iteration|iter|barrier"
        r"|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|collective|All(?:Gather|Reduce|ToAll)|ReduceScatter"
        r"|nccl\w*|forward|backward)\b"
        rf"|\b(?:hung|stuck|hanging|deadlocked|unresponsive) (?:for|since) (?:step|iteration|{_LONG})"
        rf"|\b(?:hung|stuck|hanging|deadlocked) (?:at|in|on) \S{{1,80}} (?:for|since) (?:step|iteration|\d\d:\d\d|{_LONG})",
        source="watchdogs of trainers and launchers; DLRover: all_running_node_hanged",
        sample="All running nodes hang at step 1120 and the job will be failed",
        near="All running nodes reached step 1120",
    ),
    _hang(
        "heartbeat-not-received",
        r"(?i)\bdid not get (?:initial |subsequent |any |a )?heartbeats?\b"
        r"|\bheartbeats? (?:of|from|for) (?:rank|worker|trainer|process|replica|learner)s? \S{1,40}"
        r" (?:(?:is|was|has been) )?(?:timed out|missing|expired|overdue|stale|lost)\b"
        r"|\bheartbeat(?: file)? (?:\S{1,80} )?(?:is|was) (?:stale|too old|outdated|expired|overdue)\b"
        r"|\bstale heartbeats? (?:of|from|for|in) \S"
        r"|\bhang(?:ed)? (?:was |has been |is )?(?:detected|found)\b.{0,40}\b(?:rank|step|iteration|node|launch|worker|pod)"
        r"|\bdetected (?:a )?(?:hang|hung|stalled|stuck|deadlocked?) (?:in|of|at|on|ranks?|workers?|process\w*|nodes?|training"
        r"|job|step)\b"
        r"|\b(?:relaunch|restart|kill|terminat|abort)(?:ing|ed)? (?:the )?(?:training |job |worker |processes |ranks? )?"
        r"(?:because|due to|since|as) (?:of )?(?:a |an |the )?(?:training |job |it |process )?(?:hang|hung|stall|deadlock)\b",
        source="NVRx, fault_tolerance; DLRover; MegaScale: monitors to which ranks send heartbeats",
        sample="rank_monitor: Did not get subsequent heartbeat. Waited 600.12 seconds.",
        near="rank_monitor: got subsequent heartbeat after 600 ms",
    ),
    _hang(
        "section-not-closed",
        r"\bsection '?\w+'? (?:timed? ?out|timeout)\b.{0,80}\b(?:elapsed|terminat|rank)|\b(?:open"
        r"|out-of-section) section\b.{0,20}"
        r"\btimeout for rank\b|\b[Ee]lapsed (?:time )?\d[\d.]* ?s? ?(?:>|exceeds|is over)(?: the)? (?:hang|stall|step|heartbeat)"
        r"[ _](?:timeout|limit|threshold)",
        layer="network",
        source="NVRx, fault_tolerance: sections of a step that are open for too long",
        sample="Detected open section 'fwd' timeout for rank 3; elapsed 1802.1 > 1800.0. Terminating ranks.",
        near="Opened section 'fwd', timeout 1800.0",
    ),
    _hang(
        "hang-supposed",
        r"\b(?:appears?|seems?) to (?:be|have) (?:hung|hanging|stuck|stalled|frozen|deadlocked)\b"
        r"|\b(?:is|are|was|were) (?:considered|presumed|assumed|marked(?: as)?|declared|deemed|suspected(?: to be)?)"
        r" (?:to be )?(?:hung|hanging|hang|stuck|stalled|deadlocked|frozen)\b"
        r"|\b(?:[Hh]ang|[Dd]eadlock|[Ss]tall) (?:is |was )?suspected\b|\b[Ss]uspected (?:\w+ )?(?:hang|deadlock|stall)\b"
        r"|\b(?:[Pp]robable|[Ll]ikely) (?:\w+ )?(?:hang|deadlock)\b",
        source="monitors of clusters and launchers: what they conclude from silence",
        sample="Rank 3 appears to be hung: the last batch ended 45 minutes ago",
        near="Rank 3 appears to be ready: the last batch ended 45 seconds ago",
    ),
    _hang(
        "deadlock-found",
        r"\bNot all ranks joining collective\b|\bFound (?:one|\d+) Java-level deadlocks?\b|\bDead[Ll]ock detected from rank\b"
        r"|\ball goroutines are asleep - deadlock!",
        source="JVM, its thread dump; Go, proc.go; Lightning; PyTorch, the analysis of its flight records",
        sample="fatal error: all goroutines are asleep - deadlock!",
        near="goroutine 1 is asleep: no deadlock",
    ),
)
