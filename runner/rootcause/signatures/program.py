"""Lines of ranks and their libraries: GPU memory, illegal accesses, metrics, data, checkpoints, settings."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_TORCH = "PyTorch"
_PYTHON = "Python, built-in exceptions"

_program = partial(Signature, layer="program", scope="rank")
_config = partial(Signature, fault="config_error", layer="program", scope="user", is_lasting=True)
_data = partial(Signature, fault="data_error", layer="program", scope="user", is_lasting=True)
_frame = partial(
    Signature, fault="", layer="program", scope="user", weight="supporting", source=_PYTHON
)

PROGRAM = (
    _program(
        "cuda-oom",
        r"(?:CUDA|HIP|XPU|NPU|HPU|MPS backend) out of memory|CUDA error: out of memory"
        r"|torch\.(?:cuda\.)?OutOfMemoryError"
        # Of Graphcore's compiler: the memory of the device, and of its tiles.
        r"|\bpop\w+_\w*memory_allocation_error\b|\bOut of memory on (?:tile|all tiles)"
        r"|RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)|CUDA_ERROR_OUT_OF_MEMORY"
        r"|cudaErrorMemoryAllocation|hipErrorOutOfMemory|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED"
        r"|OOM when allocating tensor.{0,200}\b(?:GPU|gpu)|Resource exhausted: OOM when allocating tensor"
        r"|ResourceExhaustedError(?: \(see above for traceback\))?: OOM when allocating tensor"
        r"|Allocator \(GPU_\d+_bfc\) ran out of memory trying to allocate.{0,80}Current allocation summary follows"
        r"|Out of memory while trying to allocate \d+ bytes|Cuda failure \d* ?'out of memory'"
        r"|InternalError: .{0,60}\bDst tensor is not initialized"
        # Of Neuron: a core's memory, with what it is used for.
        r"|\b[Ff]ailed to allocate [\d.]+ ?[KMG]?B\b.{0,80}\bon ND \d+:NC \d+"
        r"|\bGpuLaunchKernel\b.{0,300}\bout of memory\b|\b[Ss]tatus: (?:INTERNAL|Internal|RESOURCE_EXHAUSTED"
        r"|ResourceExhausted): out of memory"
        r"|RESOURCE_EXHAUSTED: (?:Error (?:allocating|preallocating|loading)|Attempting to (?:reserve|allocate))",
        fault="cuda_oom",
        scope="user",
        source=_TORCH + ", CUDACachingAllocator; XLA, BFC allocator; NCCL",
        sample="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 1 has a total capacity of 79.15 GiB",
        near="to avoid running out of CUDA memory, a smaller micro-batch was chosen",
    ),
    _program(
        "cuda-illegal-access",
        r"(?:CUDA|HIP) error: (?:an illegal memory access|an illegal instruction|"
        r"misaligned address|unspecified launch failure|device-side assert|"
        r"invalid program counter|hardware stack error|operation not supported on global/shared "
        r"address)|cudaErrorHardwareStackError"
        r"|device-side assert triggered|cudaErrorIllegalAddress|cudaErrorAssert\b"
        r"|cudaErrorLaunchFailure|CUDA_ERROR_ILLEGAL_ADDRESS|CUDA_ERROR_LAUNCH_FAILED"
        r"|hipErrorIllegalAddress|Memory access fault by GPU node-\d+"
        r"|Cuda failure \d* ?'(?:an illegal memory access|unspecified launch failure)"
        r"|an illegal (?:memory access|instruction) was encountered"
        r"|Triton Error \[\w+\]: (?:an illegal memory access|misaligned address|"
        r"unspecified launch failure|device-side assert)"
        r"|(?:CUBLAS_STATUS_EXECUTION_FAILED|CUDNN_STATUS_EXECUTION_FAILED|"
        r"CUBLAS_STATUS_INTERNAL_ERROR)"
        r"|HSA_STATUS_ERROR_(?:MEMORY_APERTURE_VIOLATION|ILLEGAL_INSTRUCTION)"
        r"|block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion ",
        fault="cuda_illegal_access",
        source="CUDA runtime, cudaGetErrorString; ROCr runtime",
        sample="RuntimeError: CUDA error: an illegal memory access was encountered",
        near="CUDA error: invalid configuration argument",
    ),
    _config(
        "wrong-build",
        r"no kernel image is available for execution|CUDA driver version is insufficient"
        r"|hipErrorNoBinaryForGpu|Unable to find code object for all current devices"
        r"|system has unsupported display driver|cudaErrorNoKernelImageForDevice"
        r"|cudaErrorInsufficientDriver|version `(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found"
        r"|error while loading shared libraries|cannot open shared object file|undefined symbol: "
        r"|The NVIDIA driver on your system is too old|Torch not compiled with CUDA enabled"
        r"|Unable to load any of \{lib\w+|Invalid handle\. Cannot load symbol \w"
        r"|Could not load library lib\w+\.so|\boperator \w+::\w+ does not exist"
        r"|ptxas fatal +: |`ptxas` failed with error code"
        r"|Failed to get convolution algorithm\. This is probably because cuDNN failed to initialize"
        r"|CUDA Setup failed despite (?:GPU|CUDA) being available",
        source="CUDA and HIP runtimes; ld.so",
        sample="ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
        near="shared object files of the build were opened; driver version is sufficient",
    ),
    _program(
        "skipped-in-a-row",
        r"(?i)\bskipped \d+ (?:iterations|steps|batches|updates) in a row\b.{0,40}\boverflow",
        fault="skipped_steps",
        scope="user",
        source="GPT-NeoX, its monitor of overflows",
        sample="Exception: Skipped 50 iterations in a row due to Overflow - Exiting training.",
        near="skipped 50 iterations in a row, which were done before",
    ),
    _program(
        "bar-without-its-loss",
        r"\bloss=nan, .{0,300}\breduced_train_loss=[-+]?\d",
        fault="",
        weight="benign",
        source="NeMo: the bar's own loss is a mean over steps that may not be there yet",
        sample="Epoch 0:   3%|3| 565/20101 [2:12:19<76:15:08, 14.05s/it, loss=nan, v_num=, reduced_train_loss=3.910]",
        near="Epoch 0:   3%|3| 565/20101 [2:12:19<76:15:08, 14.05s/it, loss=nan, v_num=, reduced_train_loss=nan.0]",
    ),
    _program(
        "loss-scale-at-minimum",
        r"(?i)loss scale (?:is )?already at (?:its )?minimum|minimum loss scale reached"
        r"|loss scale (?:has )?reached (?:its |the )?minimum"
        r"|Attempted loss scale: \d+(?:\.\d+)?, reducing to (?:1|1\.0|0|0\.\d+)[ \t\r]*$"
        r"|reducing loss scale to (?:0|0\.\d+|\d(?:\.\d+)?e-\d+)[ \t\r]*$"
        r"|loss[_ ]scale.{0,20}(?:below|under) (?:the )?minimum"
        r"|(?:below|under) (?:the )?minimum (?:loss|gradient)[_ ]scale"
        r"|\b(?:grad|gradient|loss)[_ ]?scale is (?:too )?(?:small|low)\b",
        fault="loss_scale_floor",
        scope="user",
        source="DeepSpeed, loss_scaler; fairseq, DynamicLossScaler; Apex; icefall, train.py",
        sample="FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.",
        near="Attempted loss scale: 65536, reducing to 32768",
    ),
    _program(
        "not-finite",
        r"(?i)\b(?:encountered|found|detected|got|received|contains?|returned|produced)\b.{0,30}\b(?:nan|"
        r"inf|non-?finite)\b.{0,40}\b(?:loss|grad|gradients?|norm|values?|weights?|activations?|"
        r"outputs?|logits?|during|in|at)\b"
        r"|\b(?:(?:\w{1,30}[_/])?(?:loss|grad(?:ient)?(?:[ _]norm)?s?|logits?|weights?|param(?:eter)?s?|activations?)"
        r"|[\w.]{1,60}\.(?:weight|bias|grad)|model|tensors?)\b.{0,20}\b(?:is|are|was|were|has|have|became|becomes?|"
        r"turn(?:ed|s)(?: to)?|went(?: to)?|goes to|contains?|full of)(?: \w{1,12})? (?:nan|inf|infinite|not finite|"
        r"non-?finite)s?\b"
        r"|\b(?:nan|inf|non-?finite)s?(?: values?)? in (?:the )?(?:\w{1,20} ){0,2}(?:weights?|grad(?:ient)?s?|"
        r"param(?:eter)?s?|layer|activations?|logits?|loss|[\w.]{1,60}\.(?:weight|bias|grad))\b"
        r"|\b(?:nan|non-?finite|infinite) (?:loss|gradients?|weights?)\b.{0,3} ?(?:ending|stop\w+|skip\w+|exit\w*|"
        r"abort\w*|terminat\w+|quit\w*|at|found)\b"
        r"|Function '\w+' returned nan values|\btensor\(\[+ *nan\b"
        r"|(?:nan|inf) (?:loss|gradient|grad)s? (?:detected|encountered|found)"
        r"|\b(?:nan|inf)s? (?:values? )?(?:was |were )?(?:detected|found|encountered) in (?:the )?"
        r"(?:outputs?|forward|backward|grad\w*|loss\w*|param\w*|weights?|layers?|modules?|activations?|logits?)\b"
        r"|gradients? overflow.{0,40}abort|(?:Input|Output .{1,200}) contains NaN|\bcontains either .?(?:inf|nan)"
        r"|invalid value \((?:nan|inf)\) encountered"
        r"|loss returned in .{0,60} is nan"
        r"|\b\d+/\d+\s+[\d.]+G\s+nan\s+nan\b|'eval_loss': '?nan\b"
        r"|'(?:train_)?loss': '?nan\b|'loss': '?0(?:\.0)?'?, 'grad_norm': '?nan\b|\bwith loss = nan\b"
        r"|\bInvalid loss, terminating training\b|^\s*Validation [Ll]oss\s*[:=]\s*nan\s*$"
        r"|\bloss\b.{0,40}\bis tensor\((?:nan|-?inf)\b"
        r"|\b(?:train_|step_)?loss(?:_step|_epoch)?=nan\b"
        # The running average of darknet: more than one step had no number.
        r"|\d: -?nan, -?nan avg\b|\bAvg IOU: .{0,60}\bObj: -?nan, .{0,80}\bcount: [1-9]",
        fault="nan_loss",
        source="wording of several trainers; PyTorch, anomaly mode",
        sample="RuntimeError: Function 'SoftmaxBackward0' returned nan values in its 0th output.",
        near="NaN checks are enabled for every tensor",
    ),
    _program(
        "throughput-too-low",
        r"\b[Ee]xpected throughput to be at least\b"
        r"|\b\w+(?:Error|Exception): .{0,80}\b[Tt]hroughput\b.{0,60}\b(?:below|under|lower than|less than)\b",
        fault="throughput_drop",
        source="checks of trainers and of their tests",
        sample="AssertionError: Expected throughput to be at least 560000.0, instead found 289619.7",
        near="throughput is expected to rise with the batch size",
    ),
    _program(
        "not-finite-flag",
        r"\b(?:inf|nan|Inf|NaN)(?:/(?:inf|nan))? (?:output|input|weight|bias|grad)\S*[ \t\r]*$",
        fault="nan_loss",
        weight="supporting",
        source="underflow and overflow reports of trainers",
        sample="0.00e+00      nan output[0]",
        near="0.00e+00 1.25e+03 output[0]",
    ),
    _program(
        "worker-failed",
        r"Caught \w+ in (?:DataLoader worker process|pin memory thread)"
        # It cannot have a page of shared memory.
        r"|DataLoader worker \(pid(?:\(s\))? [\d, ]+\) is killed by signal: Bus error"
        r"|[Bb]us error encountered in worker|DataLoader timed out after \d+ seconds",
        fault="data_error",
        source=_TORCH + ", torch/utils/data",
        sample="UnidentifiedImageError: Caught UnidentifiedImageError in DataLoader worker process 4.",
        near="DataLoader worker (pid 6123) was started for shard 4",
    ),
    _program(
        "worker-died",
        r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) (?:exited unexpectedly|is killed by signal: "
        r"(?:Segmentation fault|Aborted|Illegal instruction|Floating point exception|Unknown signal))"
        r"|Pin memory thread exited unexpectedly",
        fault="unknown",
        layer="launcher",
        role="death-of-worker",
        source=_TORCH
        + ", torch/utils/data and torch/csrc/DataLoader.cpp: how it ended says nothing about what it read",
        sample="RuntimeError: DataLoader worker (pid(s) 6123, 6155) exited unexpectedly",
        near="RuntimeError: DataLoader worker (pid 20211) is killed by signal: Terminated.",
    ),
    _config(
        "threads-misused",
        r"Tcl_AsyncDelete: async handler deleted by the wrong thread"
        r"|\[xcb\] Most likely this is a multi-threaded client|xcb_xlib_threads_sequence_lost"
        r"|Fatal Python error: \w+: (?:no current thread|the function must be called with (?:the GIL held|an active thread state))",
        source="Tcl, tclAsync.c; libX11, xcb_io.c; Python, pystate.c: programs whose threads break their rules are aborted",
        sample="Tcl_AsyncDelete: async handler deleted by the wrong thread",
        near="Tcl_AsyncDelete: async handler deleted",
    ),
    _program(
        "saved-table-broken",
        r"(?i)(?:DataLossError|DATA_LOSS|data loss)\b.{0,300}(?:sstable|table file|ckpt|checkpoint|RestoreV2)"
        r"|(?:OP_REQUIRES failed at )?save_restore\w*_ops\.cc:\d+ : (?:DATA[_ ]LOSS|NOT[_ ]FOUND|RESOURCE[_ ]EXHAUSTED"
        r"|FAILED[_ ]PRECONDITION|INVALID[_ ]ARGUMENT|PERMISSION[_ ]DENIED|INTERNAL|UNKNOWN)"
        r"|\bcalculated on the restored bytes\b",
        fault="checkpoint_io",
        scope="storage",
        source="TensorFlow, core/kernels/save_restore_v2_ops.cc and core/util/tensor_bundle: checkpoints are tables",
        sample="DataLossError: Unable to open table file /runs/7/model.ckpt-800: Data loss: not an sstable (bad magic number)",
        near="DataLossError: corrupted record at 28311552 of train-00003.tfrecord",
    ),
    _data(
        "data-broken",
        r"json\.decoder\.JSONDecodeError|UnidentifiedImageError|tarfile\.ReadError|ArrowInvalid"
        r"|mmap length is greater than file size"
        r"|mmap: (?:cannot|invalid)"
        r"|(?:shard|sample|index|dataset|record)\S{0,60} (?:[^ ]{1,60} )?(?:is|was) (?:corrupt|"
        r"truncated)"
        r"|[Cc]orrupt(?:ed)? (?:shard|sample|record|data|dataset|tfrecord|image)"
        r"|DataLossError|truncated record|Truncated file read"
        r"|checksum mismatch in (?:shard|record)|[Tt]oken (?:id )?(?:out of range|exceeds vocab)"
        r"|Index file doesn't match expected format|but got num_samples=0\b"
        r"|cv2\.error: .{0,200}\.empty\(\)",
        source="Python, Pillow, Arrow, TensorFlow, Megatron-LM readers",
        sample="tensorflow.python.framework.errors_impl.DataLossError: truncated record at 28311552",
        near="the dataset has 28311552 records; none was dropped",
    ),
    _data(
        "bytes-not-decoded",
        r"UnicodeDecodeError|zlib\.error|struct\.error: |lzma\.LZMAError|BadGzipFile",
        role="exception",
        source=_PYTHON + ": of data, or of a checkpoint; the frames above decide",
        sample="UnicodeDecodeError: 'utf-8' codec can't decode byte 0x80 in position 64: invalid start byte",
        near="all bytes were decoded as utf-8",
    ),
    _program(
        "checkpoint-broken",
        r"(?i)PytorchStream(?:Reader|Writer) failed"
        r"|failed (?:finding central directory|reading zip archive)|unexpected pos \d+ vs \d+"
        r"|invalid load key|SafetensorError|HeaderTooLarge|MetadataIncompleteBuffer"
        r"|(?:failed|unable|exception|cannot|could not).{0,40}\b(?:sav(?:e|ing)|writ(?:e|ing)|"
        r"load(?:ing)?|read(?:ing)?|restor(?:e|ing)|upload(?:ing)?)\b.{0,40}\b(?:checkpoint|ckpt|"
        r"state_?dict|\.pt\b|\.safetensors\b)"
        r"|checkpoint.{0,60}\b(?:is|was|appears) (?:corrupt(?:ed)?|truncated|incomplete)"
        r"|CheckpointException|CheckpointingException|corrupt(?:ed)? checkpoint"
        r"|unexpected EOF.{0,80}corrupt|storage has wrong size: expected"
        r"|[Cc]an't find a valid checkpoint at \S|RuntimeError: (?:Parent directory \S.{0,300} does not exist\.|File \S.{0,300}"
        r" cannot be opened\.)"
        r"|EOFError: Ran out of input",
        fault="checkpoint_io",
        scope="storage",
        source=_TORCH + ", caffe2/serialize; safetensors; torch.distributed.checkpoint",
        sample="RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        near="successfully saved checkpoint at iteration 4000",
    ),
    _frame(
        "traceback",
        r"Traceback \(most recent call last\)",
        role="traceback",
        scope="rank",
        sample="Traceback (most recent call last):",
        near="the most recent call is shown last",
    ),
    _frame(
        "frame-of-imports",
        r'File "(?:<frozen importlib\._bootstrap|[^"]*/importlib/__init__\.py)',
        role="frame-of-imports",
        sample='  File "<frozen importlib._bootstrap>", line 1176, in _find_and_load',
        near='  File "train.py", line 3, in main',
    ),
    _frame(
        "frame-of-data",
        r'File "[^"]*/torch/utils/data/|File "[^"]+/(?:datasets?|webdataset|streaming)/(?:[^/"]+/){0,2}[^/"]+\.py"'
        r'|File "[^"]+/data/[^/"]+\.py"'
        r'|File "(?:[^"]*[/_])?(?:data_?load(?:er|ers|ing)|datasets?|data_utils|data_samplers?|'
        r'tokenize\w*)\.py"',
        role="frame-of-data",
        sample='  File "/opt/job/data/indexed_dataset.py", line 210, in __getitem__',
        near='  File "/data/job/model/attention.py", line 210, in forward',
    ),
    _frame(
        "frame-of-checkpoints",
        r'File "[^"]*/checkpoint(?:s|ing)?/'
        r'|File "(?:[^"]*[/_])?(?:checkpoint\w*|saver?|safetensors)\.py"'
        r"|, in (?:\w*save\w*|_?load_checkpoint|load_state_dict)[ \t\r]*$",
        role="frame-of-checkpoints",
        scope="storage",
        sample='  File "/opt/job/checkpointing.py", line 88, in save_checkpoint',
        near='  File "/opt/job/loop.py", line 88, in train_step',
    ),
    _config(
        "settings-refused",
        r"(?i)error: (?:unrecognized arguments|the following arguments are required|"
        r"argument \S+: )"
        r"|unrecognized (?:option|argument)|no such option"
        r"|(?:hydra|omegaconf)\.\S*(?:Error|Exception)|is not divisible by|must be divisible by"
        r"|not a multiple of|can't open file '[^']*': \[Errno 2\]|: command not found[ \t\r]*$"
        r"|python[\d.]*: No module named |yaml\.\w+\.\w*Error|pydantic_core\.\S+ValidationError"
        r"|NCCL WARN Duplicate GPU detected|invalid device ordinal|size mismatch for \S+"
        r"|Error\(s\) in loading state_dict|\bSize mismatch between saved .{1,80} and current: |MASTER_ADDR expected, but not set"
        r"|environment variable \S+ expected, but not set"
        r"|execve\(\): .*(?:No such file|Permission denied)|Batch job submission failed"
        r"|Unable to allocate resources|is not in struct|gated repo"
        # A module without a name, as a script prints it that caught the exception; and an ordinal beyond the GPUs that are visible.
        # Of Mellanox's plug-in for Kubernetes.
        r"|\bmissing RDMA device spec for device\b"
        r"|^Error\b.{0,80}: cannot import name '\w+' from '[\w.]+'|device >= 0 && device < num_gpus"
        r"|OutOfResources: out of resource|only supports \w+ GPUs or newer"
        r"|Driver/library version mismatch",
        source="argparse, Hydra, Megatron-LM, NCCL and PyTorch messages",
        sample="train.py: error: unrecognized arguments: --micro-batch 4",
        near="all arguments were recognized; batch 4 is divisible by 2",
    ),
    _config(
        "exception-of-code",
        r"(?:^|[\s:\]])(?:ModuleNotFoundError|ImportError|SyntaxError|IndentationError|"
        r"AttributeError|NameError|TypeError|UnboundLocalError|NotImplementedError|AssertionError|"
        r"KeyError|ZeroDivisionError|IndexError|RecursionError)(?::|[ \t\r]*$)",
        role="exception-of-code",
        source=_PYTHON,
        sample="AttributeError: 'GPTConfig' object has no attribute 'n_heads'",
        near="no TypeError was raised by the 12 checks",
    ),
    _config(
        "file-missing",
        r"FileNotFoundError|NotADirectoryError|IsADirectoryError"
        r"|\[Errno 2\] No such file or directory|PermissionError|\[Errno 13\]",
        role="missing-file",
        source=_PYTHON,
        sample="FileNotFoundError: [Errno 2] No such file or directory: 'run.yaml'",
        near="no file or directory was missing",
    ),
    Signature(
        "exception-of-values",
        r"(?:^|[\s:\]])(?:ValueError|RuntimeError|OSError|EOFError|OverflowError|StopIteration|"
        r"Exception|jax\.errors\.\w+|(?:[\w.]+\.)?XlaRuntimeError|torch\._dynamo\.\S+)(?::|[ \t\r]*$)",
        role="exception",
        fault="unknown",
        layer="other",
        scope="rank",
        source=_PYTHON + ": which can mean anything",
        sample="ValueError: the schedule has no stage called 'cooldown'",
        near="a ValueError is raised when the schedule has no stages",
    ),
    _config(
        "shapes-or-devices-wrong",
        r"mat1 and mat2 (?:shapes cannot be multiplied|must have the same dtype)"
        r"|[Ee]xpected all tensors to be on the same device"
        r"|The size of tensor a \(\d+\) must match|Sizes of tensors must match"
        r"|shape '\[[^]]*\]' is invalid for input|element 0 of tensors does not require grad"
        r"|Expected to have finished reduction in the prior iteration"
        r"|Default process group has not been initialized"
        r"|[Ee]xpected (?:scalar|tensor|input) \S* ?(?:type|dtype)\S* \S+ but (?:got|found)",
        source=_TORCH + ": the program, or its settings, cannot work",
        sample="RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x512 and 768x512)",
        near="shapes of mat1 and mat2 were checked",
    ),
    _data(
        "sample-unusable",
        r"stack expects each tensor to be equal size|index out of range in self"
        r"|Unable to (?:synchronously )?open file \(|is not a file in the archive"
        r"|Cannot load file containing pickled data when allow_pickle=False",
        source=_TORCH + ", collate and embedding; HDF5",
        sample="RuntimeError: stack expects each tensor to be equal size, but got [12] at entry 0 and [9] at entry 3",
        near="the stack expects a tensor of size 12",
    ),
    _frame(
        "frame-of-serialization",
        r'File "[^"]*(?:/torch/serialization\.py|/pickle\.py|/numpy/lib/\w*npyio\w*\.py)',
        role="frame-of-serialization",
        scope="storage",
        source=_PYTHON + ": data are loaded so, and checkpoints",
        sample='  File "/usr/lib/python3/dist-packages/torch/serialization.py", line 1010, in load',
        near='  File "/opt/job/serialization_test.txt", line 1010, in load',
    ),
)
