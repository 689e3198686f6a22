"""What is stated of programs: their settings, data, checkpoints, meetings, memory."""

from functools import partial

from runner.rootcause.statements.statement import IS, SECONDS, SPOILT, Statement

_config = partial(Statement, fault="config_error", layer="program")
_program = partial(Statement, layer="program")
_meeting = partial(Statement, fault="rendezvous", layer="network")
_stalled = partial(Statement, layer="collective")
_ended = partial(Statement, fault="preemption", layer="scheduler")
_COLLECTIVE = r"(?:all[-_]?reduce|all[-_]?gather|reduce[-_]?scatter|all[-_]?to[-_]?all|broadcast|barrier|collective|send/recv)"
_PEERS = r"(?:workers?|nodes?|ranks?|hosts?|pods?|peers?|members?|participants?|processes)"
_CHECKPOINT = r"(?:checkpoints?|ckpts?|snapshot|state[ _]dict|restore|weights? file|model file|optimizer state)"
_DATA = (
    r"(?:records?|samples?|examples?|documents?|images?|rows?|batch|token ids?|tokens?|data ?sets?|data ?files?|corpus|index file"
    r"|shard|jsonl|parquet|tfrecord|annotations?|labels?|\S+\.(?:jsonl|parquet|tar|tfrecord|bin|idx|arrow|csv|npy|jpe?g|png|wav"
    r"|flac))"
)

PROGRAMS: tuple[Statement, ...] = (
    _program(
        rf"\b{_CHECKPOINT}\b.{{0,60}}(?:\b{SPOILT}|\bwrong (?:sha\d*|md5|checksum|size|hash|version|shape)|\bchecksum mismatch"
        rf"|\b(?:is|are)"
        r" missing|\bcould not (?:be )?(?:finali[sz]e|commit|save|write|restore)|\bfailed to (?:finali[sz]e|commit|save|write))"
        rf"|\b(?:could not|cannot|failed to|unable to) (?:\w+ )?(?:finali[sz]e|commit|save|write|restore|load|read|open|upload"
        rf"|flush)"
        rf" (?:\w+ ){{0,2}}{_CHECKPOINT}\b"
        r"|\b(?:restore|resume|loading|load) failed\b.{0,60}\b(?:shards?|files?|manifest|missing|exist|checksum|tensors?)\b"
        rf"|\b{_CHECKPOINT}\b.{{0,60}}\bonly \d+ (?:of \d+ )?(?:\w+ )?(?:exist|found|present|complete)\b",
        "checkpoint_io",
        sample="loader: shard 13 of checkpoint step_9000 has a wrong sha256; checkpoint step_9000 is damaged",
        near="loader: checkpoint step_9000 was saved",
    ),
    _program(
        rf"\b{_DATA}(?: \S{{1,60}})? (?:in \S+ |of \S+ |at \S+ )?{IS}{SPOILT}\b"
        r"|\b(?:token(?: id)?|label|class|index) \S{0,12}\d\S{0,12} (?:in \S+ )?(?:is |was )?out of (?:range|bounds|vocab\w*)\b"
        rf"|\b{_DATA}\b.{{0,40}}\b(?:points?|reads?|runs?|goes) past (?:the )?end\b"
        r"|\bwrong (?:number|length) of (?:columns|fields|tokens|labels)\b|\bdata ?set (?:is |was )?empty\b"
        rf"|\b{_DATA}\b.{{0,60}}\b(?:expected \d+ \w+, (?:got|found) \d+)\b",
        "data_error",
        sample="reader: record 1882 in shard-00012 is truncated",
        near="reader: record 1882 in shard-00012 was read",
    ),
    _config(
        r"\b(?:is|are) not (?:evenly )?divisible by\b|\bunknown (?:option|argument|key|setting|parameter|field|flag|optimizer"
        r"|scheduler"
        r"|model type)\b|\bdid you mean\b|\bunrecogni[sz]ed (?:option|argument|setting)s?\b"
        r"|\b(?:size|number|count|degree|length|rank)s?(?: \S{1,20})? (?:of \S+ )?exceeds (?:the )?(?:\w+ ){0,2}\d+ (?:GPUs?"
        r"|devices?|ranks?"
        r"|heads?|layers?|positions?)\b"
        r"|\b(?:needs?|requires?) (?:a )?(?:driver|CUDA|Python|torch|NCCL|compute capability|version)\b.{0,30}\bbut\b"
        r"|\bmust be (?:set|divisible|a multiple|one of|positive|at least|less than|greater than|equal|specified|provided)\b"
        r"|\binvalid (?:config\w*|setting|argument|option|hyper-?parameter)s?\b|\bmissing (?:required )?(?:key|argument|setting"
        r"|option"
        r"|environment variable|config\w*)\b|\b(?:is|are) mutually exclusive\b",
        sample="launcher: the global batch size of 1000 is not divisible by 48",
        near="launcher: the global batch size is 960",
    ),
    _meeting(
        rf"\bonly (?P<few>\d+) ?(?:of|/|out of) ?(?P<all>\d+) {_PEERS} (?:have |had )?(?:registered|joined|connected|arrived"
        rf"|started|came"
        r"|(?:are |were )?ready)\b"
        rf"|\b(?P<few2>\d+) ?(?:of|/|out of) ?(?P<all2>\d+) {_PEERS}\b.{{0,30}}\b(?:did not|never|failed to) (?:register|join"
        rf"|connect|arrive"
        r"|start|come)\b"
        r"|\b(?:could not|cannot|failed to|unable to) (?:reach|connect to|contact|find) (?:the )?(?:master|coordinator|rank 0"
        r"|head(?: node)?"
        r"|leader|rendezvous|chief)\b"
        rf"|\b(?:master|coordinator|head node|rendezvous)\b.{{0,40}}\b(?:unreachable|did not (?:answer|respond|start)|timed out)\b",
        sample="coordinator: only 15 of 16 workers registered in time",
        near="coordinator: 16 of 16 workers registered in time",
    ),
    _stalled(
        rf"\b{_COLLECTIVE}\b.{{0,60}}\b(?:pending for {SECONDS}|(?:has |have )?timed out|stuck|never (?:entered|completed"
        rf"|returned|finished)"
        r"|has been waiting|did not (?:complete|finish|return))"
        rf"|\b{_COLLECTIVE}\b.{{0,80}}\b(?:missing|absent|waiting for|without) ranks?\b"
        rf"|\brank \d+ (?:has )?(?:never|not) (?:entered|joined|reached|called) (?:the )?(?:\w+ )?{_COLLECTIVE}\b",
        "nccl_timeout",
        sample="monitor: all_reduce 8812 is pending for 1800 s on 63 ranks",
        near="monitor: all_reduce 8812 took 3 ms",
    ),
    _stalled(
        rf"\bno (?:new )?(?:steps?|iterations?|progress|updates?)\b.{{0,40}}\b(?:in|for|since) (?:the )?(?:last |past )?{SECONDS}"
        r"|\b(?:hang|deadlock) (?:was |is )?(?:detected|suspected|found)\b|\b(?:training|run|job|trainer|all ranks) (?:seems?"
        r"|appears?|is|are)"
        r" (?:to be |to have )?(?:stuck|hung|hanging|stalled|deadlocked)\b",
        "hang_no_error",
        sample="monitor: no step was completed in the last 3600 s",
        near="monitor: a step was completed in the last 3 s",
    ),
    _ended(
        r"\b(?:eviction|termination|preemption|interruption|reclaim|rebalance)s? (?:notice|warning|signal|request|event)s?\b.{0,20}"
        r"\b(?:received|arrived|got|issued|sent)?\b"
        r"|\b(?:received|got) (?:an? |the )?(?:spot |cloud |scheduler )?(?:eviction|termination|preemption|interruption|reclaim)\b"
        r"|\b(?:user|operator|admin\w*|owner) (?:has )?request(?:ed|s) (?:the |a )?(?:cancel\w*|stop|termination|abort|shutdown)\b"
        r"|\b(?:job|run|training|task|process)\b.{0,30}\b(?:cancell?ed|stopped|terminated|aborted|killed|ended) (?:by"
        r"|on request of|at the"
        r" request of) (?:the |an? )?(?:user|operator|admin\w*|owner|scheduler)\b"
        r"|\b(?:maximum|max|wall[- ]?(?:clock )?time|time|budget|quota|runtime)\b.{0,40}\b(?:reached|exceeded|expired|used up"
        r"|is over)\b"
        r".{0,40}\b(?:was |is |been |and |, )?(?:stopp(?:ed|ing)|terminat(?:ed|ing)|end(?:ed|ing)|killed|shutting down)\b"
        r"|\b(?:instance|node|machine|vm|capacity) (?:will be |is being |was )?(?:reclaimed|preempted|taken back)\b",
        sample="runner: received an eviction notice, 30 seconds left",
        near="runner: no notices received, 30 steps left",
    ),
    _program(
        r"\ballocat\w+\b.{0,60}\b(?:cuda|gpu|device|hbm|vram|npu|xpu)\b.{0,40}\b(?:failed|free)\b|\btry (?:a )?(?:smaller|lower"
        r"|reduc\w+)"
        r" (?:the )?(?:micro[- ]?)?batch\b|\b(?:cuda|gpu|npu|xpu|device|hbm|vram)(?::\d+| \d+)? (?:ran|is|was) out of memory\b"
        r"|\bnot enough (?:gpu|device|cuda|vram|hbm) memory\b",
        "cuda_oom",
        sample="trainer: an allocation of 3 GiB on cuda:3 failed",
        near="trainer: an allocation of 3 GiB on the heap",
    ),
    _program(
        r"\bkernel \w{3,60} (?:crashed|faulted|trapped)\b.{0,60}|\b(?:gpu|cuda|device)\b.{0,40}\b(?:invalid|illegal"
        r"|bad) (?:device )?"
        r"(?:address|access|read|write)\b|\b(?:invalid|illegal) (?:device )?(?:address|memory access)\b.{0,40}\b(?:gpu|cuda"
        r"|device)\b",
        "cuda_illegal_access",
        sample="kernel fused_adam crashed on device 2: invalid address",
        near="kernel fused_adam was built for device 2",
    ),
)
