"""Markers: lines that name no fault and show how to read those that do, such as a run that has ended well."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_marker = partial(Signature, fault="", layer="other", scope="rank", weight="supporting")

MARKS = (
    _marker(
        "ended-well",
        r"\"key\": \"(?:run_stop|status)\".*\"(?:status|value)\": \"success\""
        r"|exiting program (?:after [\d.]+ minutes|at iteration \d+)"
        r"|[Tt]raining (?:is |has |was )?(?:completed|complete|finished|done)\b"
        r"|(?:[Ff]inished|[Cc]ompleted) training\b|'train_runtime': "
        r"|`Trainer\.(?:fit|train)` stopped: `max_|ENDING TIMING RUN AT|\bFinal \S+ score: "
        r"|\b[Ff]inal (?:(?:[Vv]alidation|[Tt]est|[Ee]val(?:uation)?|[Tt]rain(?:ing)?) )?"
        r"(?:metrics|results?|loss|accuracy|perplexity)[\"']? ?[:=] ?\S"
        r"|[Mm]ax(?:imum)? (?:steps|iterations|epochs) reached",
        role="ended-well",
        scope="scheduler",
        source="final lines of Megatron-LM, MLPerf, Hugging Face Trainer, Lightning, AlgoPerf, verl",
        sample="[exiting program after 1190.04 minutes] datetime: 2026-08-08 01:00:51",
        near="training will be finished after 1190 minutes",
    ),
    _marker(
        "resumed",
        # Each begins with a literal: a gap before one costs a third of the speed.
        r"\b[Rr]esum(?:ed|ing) |(?:oad|estor)(?:ed|ing) "
        r"(?:checkpoint|the checkpoint|optimizer|model and optimizer|train(?:er|ing) state|snapshot|all states)"
        r"|ontinuing (?:training )?from ",
        role="resumed",
        source="sentences of Megatron-LM, DeepSpeed, Hugging Face Trainer, Lightning, fairseq, detectron2, timm and others",
        sample="[INFO|trainer.py:1773]   Continuing training from global step 7000",
        near="a checkpoint is written after each epoch",
    ),
    _marker(
        "other-work",
        r"\b[Uu]n-?freez(?:e|ing) |\b(?:[Ss]tage|[Pp]hase|STAGE|PHASE) \d{1,2}(?::| (?:of|begins|starts|started)\b)"
        r"|\b[Cc]urriculum\b.{0,40}\b(?:seq|len|stage|level|difficulty)"
        r"|\b[Ss]eq(?:uence)?[ _-]?len(?:gth)? (?:is now|changed|increased|set|->)|\b[Pp]rogressive (?:resizing|growing)\b",
        role="other-work",
        scope="user",
        source="sentences of scripts that train more layers, or longer sequences, from some step on",
        sample="Unfreezing all 12 layers",
        near="=> creating model 'resnet50', stage 2 has 4 blocks",
    ),
    _marker(
        "gpu-is-back",
        r"\bamdgpu\b.{0,60}\bGPU reset ?\(\d+\) succeeded",
        layer="device",
        role="gpu-is-back",
        scope="gpu",
        source="Linux, drivers/gpu/drm/amd/amdgpu/amdgpu_device.c",
        sample="amdgpu 0000:0a:00.0: amdgpu: GPU reset(1) succeeded!",
        near="amdgpu 0000:0a:00.0: amdgpu: GPU reset(1) failed",
    ),
    _marker(
        "hardware-corrected-it",
        r"\bevent severity: (?:corrected|info)\b|\bIt has been corrected by h/w\b|\bCorrected error, no action required\b"
        r"|\b(?:mcelog|MCE)\b.{0,40}\bCorrected error[ \t\r]*$|^Corrected error[ \t\r]*$",
        layer="machine",
        role="corrected",
        scope="node",
        source="Linux, drivers/firmware/efi/cper.c; mcelog: of one report, whose other lines say what happened",
        sample="{359}[Hardware Error]: event severity: corrected",
        near="{359}[Hardware Error]: event severity: fatal",
    ),
    _marker(
        "loss-scale-lowered",
        r"\b[Gg]radient overflow\b.{0,80}\bloss scale\b|\bOVERFLOW! .{0,60}[Ss]kipping step",
        role="overflow",
        scope="user",
        source="Apex, fairseq, DeepSpeed",
        sample="Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0",
        near="gradient overflow checks are on",
    ),
    _marker(
        "run-summary",
        r"\bwandb: (?:\S{1,4} )?Run summary:",
        role="reached-end",
        scope="scheduler",
        source="wandb, at the end of a process, well or not",
        sample="wandb: Run summary:",
        near="wandb: Run history:",
    ),
    _marker(
        "harmless",
        r"mlx5_cmd_\w+:.*ACCESS_REG.*failed|AER: (?:Multiple )?Corrected error received: id="
        r"|process group has NOT been destroyed before"
        r"|This can potentially cause a hang|NVML: Failed to get Compute running procs"
        r"|Proxy Service \d+\] Failed to execute operation Close|\[W[^\]]*TCPStore\.cpp"
        r"|[Ff]ailed to check the \"should dump\" flag on TCPStore"
        r"|[Ss]ending process \d+ closing signal SIGTERM|Could not load dynamic library"
        r"|will (?:not load any checkpoints|start from random)|[Ff]alling back to"
        r"|[Ss]kipping (?:bad |broken |corrupt(?:ed)? )?(?:sample|batch|file|shard|document|"
        r"record)"
        r"|failed call to cuInit|(?:INFO|WARNING|DEBUG|xla_bridge)\b.{0,80}Unable to initialize backend '"
        r"|^Unable to initialize backend '(?:tpu|rocm|interpreter|plugin|cpu|METAL|iree)'"
        r"|\bSimplifiedTraceback: For simplicity"
        # What torch looks for in a driver that is older.
        r"|Can't find nvml\w+: \S+: undefined symbol"
        r"|Attempting to register factory for plugin|\bNCCL (?:INFO|TRACE) \w{2,12}/Plugin\b"
        # Its server of status reports, which no collective needs.
        r"|\bras/\w+\.cc:\d+ NCCL WARN\b"
        # Of Google's plug-in, which reported its sockets connected after that.
        r"|\bnet_fastsocket\.cc:\d+ NCCL WARN (?:Cannot get incoming CPU|Maximum retry reached)"
        r"|\bmodprobe(?:\[\d+\])?: (?:FATAL|WARNING): Module (?:nvme[\w\-]*|dm[_\-]\w+|i?scsi\w*|md[_\-]?\w*|loop|raid\d+)"
        r" not found"
        r"|\b(?:[Nn]o|0|zero) (?:nan|NaN|inf|Inf)s?\b"
        r"|\b(?:inf|nan|Inf|NaN)\b[^.]{0,60}[Ss]kipping (?:the |this )?(?:step|update)"
        r"|\b(?:0|no) corrupt|\. Ignoring\.[ \t\r]*$|\bnot been (?:preempted|evicted)"
        r"|\b(?:can|may|might|could|would|should) be (?:pre-?empted|evicted|reclaimed)\b"
        r"|\b(?:[Ii]f|[Ww]hen|[Ww]henever|in case|[Uu]nless|until) (?:(?:the|a|an|your|this|it|any) )?(?:\w+ ){0,2}(?:is|are"
        r"|was|gets|get) (?:pre-?empted|evicted|reclaimed)\b"
        r"|\bpreempted\W{1,4}(?:0|[Ff]alse|FALSE|[Nn]one|NONE|null)\b"
        r"|(?:[Hh]andlers? (?:for|of|on|is|was|are|registered|installed|set)\b|[Ww]ill trigger|detection enabled)"
        r".{0,60}(?:preempt|SIGTERM|hang)"
        r"|(?:preempt\w*|SIGTERM|hang|hung).{0,40}(?:handler|will trigger|detection enabled|"
        r"detected: false)"
        r"|NCCL timeout (?:is )?set to|Call to ibv_open_device failed"
        r"|ibv_reg_mr_iova2.*Bad address|does not support timeout|nvidia-smi: command not found"
        r"|\[W[^\]]*socket\.cpp.*(?:errno: 97|cannot be initialized)"
        # Not "error info: 0", of a register.
        r"|(?:corrupt\w*|fail(?:ed|ures)|errors)[^:.]{0,20}: 0\b"
        r"|error(?:[^:. \d][^:.]{0,19}| (?:[^i:.]|i[^n:.]|in[^f:.])[^:.]{0,17})?: 0\b",
        scope="node",
        weight="benign",
        source="health checks and real logs of runs that ended well: noise of monitors, of tear-down, and what was corrected",
        # Of Linux until 4.18; the line after it names the device.
        sample="pcieport 0000:00:1b.4: AER: Corrected error received: id=00dc",
        near="pcieport 0000:00:1b.4: AER: Uncorrected (Fatal) error received: id=00dc",
    ),
    _marker(
        "record-without-text",
        r"\[[EWI][^\]]* ProcessGroup\w*\.cpp:\d+\](?: \[PG [^\]]*| \[)[Rr]ank (?P<rank>\d+)\][ \t\r]*$",
        role="names-writer",
        source="PyTorch, c10d, where a terminal or a paste broke its lines",
        sample="[E810 15:36:05.945860779 ProcessGroupNCCL.cpp:1899] [PG ID 0 PG GUID 0(default_pg) Rank 1]",
        near="[E810 15:36:05.945860779 ProcessGroupNCCL.cpp:1899] [PG ID 0 PG GUID 0(default_pg) Rank 1] It has ended",
    ),
    _marker(
        "retried",
        r"(?:will retry|, retrying|retrying in \d|\bRetrying\b|\[[Rr]etry \d+/\d+\])",
        scope="node",
        weight="benign",
        source="clients of services: the line before it, or the line itself, is an error that is tried once more",
        sample="Retrying in 4s [Retry 3/5].",
        near="the retry limit was reached",
    ),
    _marker(
        "frame-of-any-kind",
        r'File "[^"]+", line \d+,? in |terminate called (?:after|without)|: terminating (?:due to|with) uncaught '
        r"|Fatal Python error: ",
        role="frame",
        source="Python, traceback.py and faulthandler.c: where a stack is, whatever its first line; libstdc++, libc++",
        sample='  File "/opt/job/train.py", line 88, in main',
        near="/opt/job/train.py:88: UserWarning: the schedule has no stages",
    ),
    _marker(
        "frame-of-tear-down",
        r'File "[^"]*/multiprocessing/util\.py", line \d+, in (?:_run_finalizers|_exit_function|_remove_temp_dir|__call__)',
        role="frame-of-tear-down",
        source="Python, multiprocessing/util.py: finalizers that run while the interpreter ends",
        sample='  File "/usr/lib/python3.11/multiprocessing/util.py", line 303, in _run_finalizers',
        near='  File "/usr/lib/python3.11/multiprocessing/pool.py", line 125, in worker',
    ),
    _marker(
        "ignored-exception",
        r"Exception ignored in: |Error in atexit\._run_exitfuncs"
        r"|Exception in thread .*(?:_monitor|tqdm|wandb)",
        role="ignored",
        source="Python, sys.unraisablehook and atexit: what is raised while the interpreter ends",
        sample="Exception ignored in: <function _releaseLock at 0x7f1c2a3b4c10>",
        near="no exception was ignored in the last run",
    ),
)
