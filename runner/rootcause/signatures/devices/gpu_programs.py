"""Lines of programs about the GPU that they run on: checkers and debuggers of kernels, numbers of CUDA's errors in any language,
and settings with which no device is there or no kernel fits.
"""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_TOOLS = "compute-sanitizer, cuda-memcheck and cuda-gdb"
_NUMBERS = "CUDA and HIP, enum of errors: bindings of Julia, Rust, Go, Java and C print the number with or without its text"
_SETTINGS = "drivers, toolkits and containers of devices: versions and settings that do not fit"
# How bindings print the number of an error.
_NUMBER = (
    r"\b(?:CUDA|Cuda|HIP|MUSA)(?: [Rr]untime| [Dd]river| RT| API)?(?: API)? ?(?:[Ee]rror|ERROR|[Ff]ailure|FAILURE|[Ee]rrno)"
    r"(?: [Cc]ode| status| number)?(?: = |=|: ?| is | #|#| ?\(| )"
)

_kernel = partial(Signature, fault="cuda_illegal_access", layer="program", scope="rank")
_memory = partial(Signature, fault="cuda_oom", layer="program", scope="user")
_config = partial(Signature, fault="config_error", layer="program", scope="user", source=_SETTINGS)

GPU_PROGRAMS = (
    _kernel(
        "kernel-checked",
        r"^.{0,60}=========\s+(?:Invalid __(?:global|shared|local)__ (?:read|write|atomic)|Out-of-range Shared or Local Address"
        r"|Misaligned Shared or Local Address|(?:Warning: |Error: )?(?:Race|Potential (?:RAW|WAR|WAW) hazard)\b"
        r"|Barrier error detected|Malloc/Free error encountered|Invalid PC)"
        r"|\bCUDA Exception: (?:Warp|Lane|Device|Cluster|Block|Context|Out-of|Misaligned|Illegal|Stack)"
        r"|\breceived signal CUDA_EXCEPTION_\d+",
        source=_TOOLS,
        sample="========= Invalid __global__ write of size 4 bytes",
        near="========= ERROR SUMMARY: 0 errors",
    ),
    _kernel(
        "kernel-fault-by-number",
        _NUMBER + r"(?:7(?:00|1[0-9]|20))\b|\[7(?:00|1[4-9])\] Call to cu\w+ results in"
        r"|\b(?:cuda|cudart|hip)\w*\(?\)? ?(?:failed|returned)(?: with)?(?: error)?(?: code)?[ :=]{1,3}7(?:00|1[0-9])\b"
        r"|\bERROR_(?:ILLEGAL_ADDRESS|MISALIGNED_ADDRESS|LAUNCH_FAILED|ILLEGAL_INSTRUCTION|HARDWARE_STACK_ERROR|INVALID_PC"
        r"|ASSERT)\b",
        source=_NUMBERS,
        sample="train: CUDA error code 700 at scatter.cu:88",
        near="train: CUDA error code 0 at scatter.cu:88",
    ),
    _memory(
        "device-memory-by-words",
        r"\bOut of GPU memory trying to allocate\b|\b(?:cuda|hip|musa|cu)M(?:alloc|emAlloc|emCreate)\w*(?:\(\))? (?:has )?failed:"
        r" (?:CUDA error: )?out of memory\b|\bfailed to allocate (?:CUDA|ROCm|HIP|SYCL|Vulkan|MUSA|CANN)\d+ buffer of size\b"
        r"|\bCall to cuMem\w+ results in (?:CUDA_ERROR_)?OUT_OF_MEMORY|\b(?:CUDA|HIP)_?ERROR_OUT_OF_MEMORY\b"
        r"|\bUR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY\b|\bZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY\b",
        source="CUDA.jl, ggml, numba, oneAPI",
        sample="ERROR: LoadError: Out of GPU memory trying to allocate 7.450 GiB",
        near="Effective GPU memory usage: 99.12% (23.400 GiB/23.607 GiB)",
    ),
    Signature(
        "memory-error-by-number",
        _NUMBER + r"214\b",
        fault="gpu_ecc",
        layer="device",
        scope="gpu",
        source=_NUMBERS,
        sample="train: CUDA error code 214 at scatter.cu:88",
        near="train: CUDA error code 1 at scatter.cu:88",
    ),
    _config(
        "settings-by-number",
        _NUMBER + r"(?:35|100|101|209|218|222|803|804)\b",
        source=_NUMBERS
        + ": the driver is too old, no device, no such device, no kernel image, no fit of driver and library",
        sample="train: CUDA error code 209 at scatter.cu:88",
        near="train: CUDA error code 0 at scatter.cu:88",
    ),
    Signature(
        "fabric-by-number",
        _NUMBER + r"802\b|\bError 802: system not yet initialized",
        fault="nvlink_error",
        layer="link",
        scope="node",
        source=_NUMBERS + ": the fabric manager has not set up the links",
        sample="train: CUDA failure 802: system not yet initialized ; GPU=0",
        near="train: CUDA failure 0: no error ; GPU=0",
    ),
    _config(
        "libraries-for-other-devices",
        r"\brocBLAS error: (?:Cannot read .{0,160}TensileLibrary|Could not initialize Tensile host)"
        r"|\bcudaErrorUnsupportedPtxVersion\b|\bUnsupported \.version \d+\.\d+; current version is\b"
        r"|\bValue 'sm_\w+' is not defined for option 'gpu-name'|\bnvcc fatal +: |\bUnsupported gpu architecture 'compute_"
        r"|\bThe engine plan file is (?:not compatible with this version|generated on an incompatible device)"
        r"|\bis not compatible with the current PyTorch installation\b",
        source="rocBLAS, ptxas, nvcc, TensorRT, PyTorch: built for another device or another version",
        sample="rocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: No such file or directory",
        near="rocBLAS: /opt/rocm/lib/rocblas/library/TensileLibrary.dat was read",
    ),
    _config(
        "devices-not-opened",
        r"\bUnable to open /dev/kfd (?:read-write|.{0,40}): |\bunable to open file /dev/kfd\b"
        r"|\bnvidia-fs(?:\.ko)? driver (?:not loaded|initialization error|is not loaded)\b"
        r"|\bUnable to (?:en|dis)able MIG Mode for GPU\b|\bUnable to create a GPU instance\b|\bFailed to (?:create|destroy) GPU"
        r" instances?\b",
        source=_SETTINGS,
        sample="Unable to open /dev/kfd read-write: Permission denied",
        near="/dev/kfd was opened read-write",
    ),
    Signature(
        "core-file-of-gpu",
        r"^.{0,30}\bFailed to allocate file: No space left on device",
        fault="",
        layer="other",
        scope="rank",
        weight="benign",
        source="ROCr runtime: it has no room for the core file of a GPU, whose fault is in the line above",
        sample="Failed to allocate file: No space left on device",
        near="Failed to write file: No space left on device",
    ),
    Signature(
        "daemon-of-gpus-ends",
        r"\bnvidia-persistenced(?:\[\d+\])?: Received signal 15\b",
        fault="",
        layer="other",
        scope="node",
        weight="benign",
        source="nvidia-persistenced: it ends when it is asked to, as at a shutdown",
        sample="nvidia-persistenced[1202]: Received signal 15, PID file unlinked; shut down successfully",
        near="nvidia-persistenced[1202]: Received signal 11",
    ),
    Signature(
        "devices-not-queried",
        r"\bnvidia-persistenced\b.{0,40}\bFailed to query NVIDIA devices\b",
        fault="gpu_lost",
        layer="device",
        scope="node",
        source="nvidia-persistenced: there are no device files",
        sample="nvidia-persistenced[1202]: Failed to query NVIDIA devices. Please ensure that the NVIDIA device files exist",
        near="nvidia-persistenced[1202]: device 0000:07:00.0 - persistence mode enabled.",
    ),
)
