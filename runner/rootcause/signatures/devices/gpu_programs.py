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
        _NUMBER + r"(?:7(?:00|1[0-9]|20))\b|\bcall to (?:cu|hip)\w+ returned error 7(?:00|1[0-9])\b"
        r"|\[7(?:00|1[4-9])\] Call to cu\w+ results in"
        r"|\b(?:cuda|cudart|hip)\w*\(?\)? ?(?:failed|returned)(?: with)?(?: error)?(?: code)?[ :=]{1,3}7(?:00|1[0-9])\b"
        r"|\bcudaSuccess \((?:4|59|7[2-7]|70[0]|71[0-9]|719) vs\. 0\)|\bHSA_STATUS_ERROR_MEMORY_FAULT\b"
        r"|\bSegmentation fault from GPU at 0x|\bCU(?:DNN|BLAS)_STATUS_MAPPING_ERROR\b"
        r"|\bamdgpu\b.{0,60}\bsq_intr: error\b|\bERROR_(?:ILLEGAL_ADDRESS|MISALIGNED_ADDRESS"
        r"|ILLEGAL_INSTRUCTION|HARDWARE_STACK_ERROR|INVALID_PC)\b",
        source=_NUMBERS,
        sample="train: CUDA error code 700 at scatter.cu:88",
        near="train: CUDA error code 0 at scatter.cu:88",
    ),
    _memory(
        "device-memory-by-words",
        r"\bOut of GPU memory trying to allocate\b|\b(?:cuda|hip|musa|cu)M(?:alloc|emAlloc|emCreate)\w*(?:\(\))? (?:has )?failed:"
        r" (?:CUDA error: )?out of memory\b|\bfailed to allocate (?:CUDA|ROCm|HIP|SYCL|Vulkan|MUSA|CANN)\d+ buffer of size\b"
        r"|\bCall to cuMem\w+ results in (?:CUDA_ERROR_)?OUT_OF_MEMORY|\b(?:CUDA|HIP)_?ERROR_OUT_OF_MEMORY\b"
        r"|\b(?:CUDA|HIP|MUSA)(?: [Rr]untime| [Dd]river)?(?: [Ee]rror)?(?: \d+)?: (?:CUDA: )?out of memory\b"
        r"|\bError Code \d+: OutOfMemory\b|\bMemorySpace named \"(?:Cuda|HIP|SYCL)\w*\" failed\b"
        r"|\bcudaSuccess \(2 vs\. 0\)|\bNo available memory for the cache blocks\b"
        r"|\bis less than desired GPU memory utilization\b|\bmemory isn't enough and alloc failed\b"
        r"|\bFailed to CUDA (?:calloc|malloc|host alloc)\b|\brmm::out_of_memory\b"
        r"|\bpool_memory_resource\b.{0,40}\bMaximum pool size exceeded\b"
        r"|\bUR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY\b|\bZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY\b",
        source="CUDA.jl, ggml, numba, oneAPI",
        sample="ERROR: LoadError: Out of GPU memory trying to allocate 7.450 GiB",
        near="Effective GPU memory usage: 99.12% (23.400 GiB/23.607 GiB)",
    ),
    Signature(
        "device-memory-as-exception",
        r"\bout_of_memory: CUDA error\b|\bstd::bad_alloc: (?:out_of_memory: )?(?:CUDA|cuda|RMM)"
        r"|\b[Oo]ut of memory allocating \d+ bytes of device memory\b|\bcall to (?:cu|hip)Mem\w+ returned error 2\b"
        r"|\b(?:[Aa]llocator|ran|is|was) out of device memory\b",
        fault="cuda_oom",
        # Beside the name of an exception that means memory of the host elsewhere.
        layer="device",
        scope="user",
        source="RAPIDS memory manager; OpenACC runtime; tinygrad",
        sample="MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /rmm/mr/device/cuda_memory_resource.hpp",
        near="MemoryError: std::bad_alloc",
    ),
    Signature(
        "memory-error-by-number",
        _NUMBER + r"214\b|\bcall to (?:cu|hip)\w+ returned error 214\b",
        fault="gpu_ecc",
        layer="device",
        scope="gpu",
        source=_NUMBERS,
        sample="train: CUDA error code 214 at scatter.cu:88",
        near="train: CUDA error code 1 at scatter.cu:88",
    ),
    _config(
        "settings-by-number",
        _NUMBER
        + r"(?:35|100|101|209|218|222|803|804)\b|\bcudaSuccess \((?:8|10|35|38|48|100|101|209|222|803) vs\. 0\)",
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
        r"|\bis not compatible with the current PyTorch installation\b"
        r"|\bCU(?:DNN|BLAS|SPARSE|SOLVER)_STATUS_(?:ARCH_MISMATCH|VERSION_MISMATCH|LICENSE_ERROR|SUBLIBRARY_VERSION_MISMATCH)\b"
        r"|\b(?:gfx\d\w{2,5}|sm_\d+\w?|compute_\d+\w?) (?:is )?(?:not supported|unsupported) (?:by|in|with) (?:this|the)\b"
        r"|\bkernel version \S+ does not match DSO version\b|\bLoaded runtime CuDNN library: \S+ but source was compiled with\b"
        r"|\bNo CUDA device code available\b|\b(?:NVML_)?ERROR_(?:LIBRARY_NOT_FOUND|DRIVER_NOT_LOADED|LIB_RM_VERSION_MISMATCH)\b"
        r"|\bNo adapter found for graphics API\b|\[NCC_[A-Z]{4}\d{3}\]|\bneuronx?-?cc\S{0,40}: ERROR: "
        r"|\bNRT_(?:INVALID_INSTANCE|UNSUPPORTED_NEFF_VERSION)\b|\bcould not create a primitive\b",
        source="rocBLAS, ptxas, nvcc, TensorRT, PyTorch: built for another device or another version",
        sample="rocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: No such file or directory",
        near="rocBLAS: /opt/rocm/lib/rocblas/library/TensileLibrary.dat was read",
    ),
    _config(
        "devices-not-opened",
        r"\bUnable to open /dev/kfd (?:read-write|.{0,40}): |\bunable to open file /dev/kfd\b"
        r"|\bnvidia-fs(?:\.ko)? driver (?:not loaded|initialization error|is not loaded)\b"
        r"|\bmodprobe: (?:FATAL|ERROR): (?:Module|could not insert) '?(?:nvidia|amdgpu|i915|xe|habanalabs|gdrdrv|neuron)\w*"
        r"|\bError! Bad return status for module build on kernel\b|\bdcmi (?:module|model) initialized? failed\b"
        r"|\bROCk module is NOT loaded\b"
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
