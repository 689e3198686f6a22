"""Files, services and settings of programs."""

from runner.rootcause.families.family import UNREADABLE, UNREADABLE_BEFORE, Family, program, storage

# Paths of checkpoints and of training data, by a word of their own, and that nothing is there.
_CHECKPOINT_PATH = r"(?:[/_.\-]|\b)(?:checkpoints?|ckpts?|safetensors|pth|caffemodel|pdparams|weights|snapshots?|gguf|distcp)\b"
_DATA_PATH = (
    r"(?:/(?:\S{0,120}[/_.-])?(?:data|data_?sets?|shards?|corpus|corpora|train|tokenized|tfrecords?|parquet|jsonl|arrow|wav|flac|mp3|mp4"
    r"|jpe?g|png|tar|lmdb|npy|idx|mds|t7|webdataset|array_?records?|manifests?)\b|\b(?:data|datasets|corpora|shards)/\S)"
)
_NOT_THERE = r"(?:no such (?:file|object|key|directory)|does ?n[o']t exist|not found|NoSuchKey|cannot be found|is missing)"
_NOT_OPENED = r"(?:cannot|can't|could ?n[o']t|unable to|failed to) (?:open|find|locate|stat|access)"


# Commands of scripts, which go on without what is not there.
_TOOLS = r"(?:\S*/)?(?:ls|cp|mv|rm|rmdir|cat|stat|find|du|ln|mkdir|tail|head|grep|chmod|chown|rsync|touch|wc|source|realpath)"
# What a program does without it: the first run has none.
_WITHOUT = (
    r"(?:from scratch|\bfresh\b|\btraining from|initiali[sz]|default|optional|\bcreat|\bbuild|download"
    r"|first run|tokeniz|\bskip|\bwill\b)"
)


def _not_there(path: str) -> str:
    missing = rf"{path}\S{{0,120}}[ :>'\"\])].{{0,60}}\b{_NOT_THERE}|\b{_NOT_THERE}.{{0,60}}{path}"
    return rf"^(?!{_TOOLS}: |.{{0,400}}{_WITHOUT}).{{0,2000}}?(?:{missing}|\b{_NOT_OPENED}\b.{{0,40}}{path})"


SERVICES = (
    storage(
        "disk-full",
        r"no space left|disk quota|quota exceeded|disk is full|read-only file ?system|input/output error|too many levels of",
        sample="write of shard 4 failed: quota exceeded",
        near="the disk has space left",
        confidence=0.8,
    ),
    program(
        "no-gpu-visible",
        r"no (?:cuda|hip|xpu)?[ -]?(?:gpus?|devices?)(?: are| is| were)? (?:available|visible|found|detected)|no (?:cuda"
        r"|hip)-capable device"
        r"|found no nvidia driver|driver version is insufficient|invalid device ordinal",
        "config_error",
        sample="RuntimeError: No CUDA GPUs are available",
        near="8 GPUs are available",
        confidence=0.7,
    ),
    program(
        "access-refused",
        r"\b(?:access ?denied|permission denied|unauthori[sz]ed|forbidden|invalid credentials?|credentials? (?:not|expired)"
        r"|no credentials"
        r"|not authorized|(?:http|status)\D{0,12}40[13]|40[134] client error|(?:repo\w*|model|revision|project) ?not ?found"
        r"|token (?:is )?(?:invalid|expired)|no such bucket|NoSuchBucket"
        r"|bucket .{0,40}not exist)\b",
        "config_error",
        sample="the object store answered 403: access denied for this key",
        near="the token was renewed",
        confidence=0.6,
    ),
    storage(
        "service-of-files",
        r"\b(?:bucket|blob|object store|s3|gcs|azure|hdfs|minio|storage|download\w*|upload\w*"
        r"|hub)\b.{0,120}\b(?:timed? ?out|timeout"
        r"|connection (?:reset|refused|aborted|error)|unavailable|throttl\w*|slow ?down|50[0234]|retr(?:y|ies)"
        r"|internal error|broken pipe)\b|\bHTTP (?:request|response|status)\b.{0,60}\b50[0234]\b",
        sample="upload to the bucket failed after 5 retries: connection reset",
        near="the bucket holds 3 objects",
        confidence=0.65,
    ),
    program(
        "checkpoints",
        r"\b(?:checkpoint\w*|ckpts?|state_?dict|safetensors|distcp)\b" + UNREADABLE
        + r"|\b(?:failed|unable) to (?:load|restore|read|save|write) (?:\w+ ){0,3}weights\b"
        r"|\b(?:checkpoint\w*|ckpts?)\b.{0,40}\b(?:sav|writ|load|restor|read|upload|download)\w*\b.{0,20}\b(?:failed|failure"
        r"|timed? ?out)\b|" + UNREADABLE_BEFORE
        + r"\b(?:checkpoint\w*|ckpts?|state_?dict|safetensors|distcp)\b",
        "checkpoint_io",
        scope="storage",
        sample="restore: the checkpoint of step 800 is not finalized, a commit marker is missing",
        near="the checkpoint of step 800 was restored",
        confidence=0.65,
    ),
    program(
        "data-sets",
        r"\bMDB_(?:CORRUPTED|INVALID|PAGE_NOTFOUND)\b"
        r"|\binvalid data found\b|\btokenizing data\b|\b(?:input|training) data (?:is|are|was) (?:invalid|corrupt\w*)"
        r"|\b(?:data ?sets?|data_?loaders?|shards?|tfrecords?|parquet|jsonl|samples?|image files?|token files?|corpus)\b"
        + UNREADABLE + r"|" + UNREADABLE_BEFORE
        + r"\b(?:data ?sets?|data_?loaders?|shards?|tfrecords?|parquet|jsonl|samples?|image files?|token files?|corpus)\b",
        "data_error",
        sample="reader: shard 12 of the corpus is truncated",
        near="the dataset has 12 shards",
        confidence=0.65,
    ),
    program(
        "checkpoint-not-there",
        _not_there(_CHECKPOINT_PATH),
        "checkpoint_io",
        scope="storage",
        sample="loader: open /runs/7/ckpt/step-800.bin: no such file or directory",
        near="loader: open /runs/7/ckpt/step-800.bin: 3 parts",
        confidence=0.6,
    ),
    program(
        "data-not-there",
        _not_there(_DATA_PATH),
        "data_error",
        sample="loader: open /mnt/data/part-00081: no such file or directory",
        near="loader: open /opt/run/part-00081: no such file or directory",
        confidence=0.6,
    ),
    program(
        "files-not-opened",
        r"\b(?:errors?|fail\w*|unable|could ?n[o']t|can(?:no|')t)(?: to)? (?:open|access|stat|find|locate|read)(?:ing|ed)?\b"
        r"(?: \w+){0,3} (?:files?|streams?|archives?|tables?|[rw]specifier|path|folder|directory)\b",
        "config_error",
        sample="ERROR (nnet3-init:Input():kaldi-io.cc:756) Error opening input stream exp/lda.mat",
        near="the input stream exp/lda.mat was opened",
        confidence=0.55,
    ),
    program(
        "device-libraries",
        r"(?<!::)\b(?:cuda|cu|hip|cublas|cudnn|nvrtc|cufft|curand|cusolver|cusparse|nvjitlink|nvml|rsmi|rocblas|miopen|hsa|rccl"
        r"|nccl)_?"
        r"(?:error|status|result|failure)|\b(?:cuda|hip) (?:error|failure)|\bCU(?:DA|BLAS|DNN|FFT|RAND|SOLVER|SPARSE)_",
        "config_error",
        sample="CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH",
        near="cuda 13.1 is installed",
        confidence=0.6,
    ),
    program(
        "parsed-settings",
        r"\b(?:Scanner|Parser|Constructor|Composer|Representer|Emitter|TOMLDecode|MissingSectionHeader|Interpolation\w*"
        r"|ConfigAttribute"
        r"|ConfigKey|ConfigType|Validation)(?:Error|Exception)\b|\bwhile (?:parsing|scanning|constructing) (?:a|an|the)\b",
        "config_error",
        sample="yaml.scanner.ScannerError: while scanning a simple key",
        near="the parser has ended",
        confidence=0.7,
    ),
    program(
        "files-of-the-system",
        r"(?:^|[\s'\"`(=:])/(?:etc|var|run|usr|lib64|lib|proc|sys|boot)/.{0,160}(?:no such file|not found|does not exist"
        r"|permission denied)"
        r"|\b(?:not found|no such file|missing|cannot stat|couldn't (?:open|stat))\b.{0,60}/(?:etc|sys|proc|usr|run|lib64?)/",
        "config_error",
        sample="topod: error: Domain socket directory /var/spool/topod: No such file or directory",
        near="loader: error: Domain socket directory /data/spool/topod: No such file or directory",
        confidence=0.55,
    ),
    program(
        "job-commands",
        r"\b(?:srun|sbatch|salloc|scontrol|slurm\w*|qsub|bsub|mpirun|mpiexec|prterun|prun|kubectl|ray)(?:-\w+)?: (?:error"
        r"|fatal)\b"
        r"(?!.{0,60}\b(?:exit|node|task|signal|kill|mpi/pmi))",
        "config_error",
        sample="sbatch: error: Invalid qos specification",
        near="sbatch: submitted batch job 812",
        confidence=0.55,
    ),
    program(
        "build-or-arguments",
        r"\b(?:undefined symbol|shared object|version .{0,40}not found|unrecognized (?:argument|option)|unknown (?:argument"
        r"|option|key|flag)"
        r"|missing required|is required|usage(?=: )|no module named|(?:missing|unknown) field [`'\"]?\w+"
        r"|command not found|not installed|no such (?:option|command)"
        r"|unsupported|exec format error|cannot execute"
        r"|must be|not supported|invalid (?:argument|value|option|config\w*|choice|parameter)|incompatible)\b",
        "config_error",
        sample="launcher: unrecognized option '--nodes'",
        near="all options are known",
        confidence=0.65,
    ),
    Family(
        "connection",
        r"\b(?:connection (?:reset|refused|closed|aborted|lost|timed out)|broken pipe|no route to host"
        r"|network is (?:unreachable|down)"
        r"|host is (?:down|unreachable)|socket (?:closed|error|hang up)|peer (?:died|lost|closed|gone|disconnected)"
        r"|lost peer|(?-i:ECONNREFUSED|ECONNRESET|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT|ENOTFOUND|UnknownHostException"
        r"|NoRouteToHostException|ConnectException)|connection from \S{1,80} is closed|(?:stream|channel) (?:is )?closed"
        r"|dial (?:tcp|udp)\b.{0,120}\b(?:i/o timeout|no such host|server misbehaving|refused|unreachable))\b",
        "nccl_network",
        layer="network",
        scope="fabric",
        sample="rank 3: the transport reports a broken pipe",
        near="3 connections are open",
        confidence=0.5,
    ),
)  # fmt: skip
