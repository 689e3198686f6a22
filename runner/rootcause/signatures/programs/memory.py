"""Memory that a device, or a host, does not have, in the words of frameworks, of other languages' runtimes, and of engines."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_device = partial(Signature, fault="cuda_oom", layer="program", scope="user")
_host = partial(Signature, fault="host_oom", layer="machine", scope="node")

PROGRAM_MEMORY = (
    _device(
        "device-memory-of-frameworks",
        # Kaldi, cu-allocator.cc; Caffe and MXNet, whose checks name cudaSuccess and cudaMalloc; Torch in Lua.
        r"cudaMalloc(?:Pitch|Async|Managed|Host)? failed: (?:rows|out of memory)|Failed to allocate a memory region of \d+ bytes"
        r"|cudaSuccess \(2 vs\. 0\)|cuda runtime error \(2\)|error=2 : out of memory"
        # Paddle, MindSpore, OneFlow, Jittor.
        r"|Out of memory error on [GX]PU \d|memory isn't enough and alloc failed|Out of Memory!!! Request memory size"
        r"|GPU memory is overflow"
        # CUDA.jl, CuPy, RAPIDS, darknet.
        r"|Out of GPU memory trying to allocate|OutOfGPUMemoryError|cupy\.cuda\.memory\.OutOfMemoryError"
        r"|bad_alloc: (?:out_of_memory: )?(?:CUDA error|cudaErrorMemoryAllocation)|maximum pool size exceeded"
        # ONNX Runtime's arena, TensorRT, OpenCL, Vulkan, Level Zero, Metal, MLX.
        r"|Available memory of \d+ is smaller than requested bytes of \d+|Requested amount of GPU memory \("
        r"|CL_MEM_OBJECT_ALLOCATION_FAILURE|VK_ERROR_OUT_OF_DEVICE_MEMORY|(?:ZE|UR)_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"
        r"|kIOGPUCommandBufferCallbackErrorOutOfMemory|\[metal::malloc\] Attempting to allocate \d"
        # Libraries of CUDA beside cuBLAS and cuDNN; SGLang; Gaudi.
        r"|CU(?:SPARSE|SOLVER|FFT|RAND|TENSOR)_(?:STATUS_)?ALLOC(?:ATION)?_FAILED|Please try to increase --mem-fraction-static"
        r"|Allocation failed for size::\d|DEVMEM [Aa]lloc(?:ation)? failed",
        source="Kaldi, Caffe, MXNet, Paddle, MindSpore, CUDA.jl, CuPy, RMM, ONNX Runtime, TensorRT, OpenCL, Vulkan, Metal",
        sample="ERROR (nnet3-chain-train[5.5.1]:MallocPitch():cu-allocator.cc:127) cudaMallocPitch failed: rows=51200, cols=1536",
        near="LOG (nnet3-chain-train[5.5.1]:PrintMemoryUsage():cu-allocator.cc:368) Memory usage: 11441M cached by cudaMallocPitch",
    ),
    _host(
        "host-memory-of-runtimes",
        # Java, Node, Go, Rust, Julia, R, MATLAB, Lua, Haskell, .NET.
        r"java\.lang\.OutOfMemoryError: (?:Java heap space|GC overhead|Direct buffer|Metaspace|Requested array size"
        r"|Compressed class)"
        r"|There is insufficient memory for the Java Runtime Environment|JavaScript heap out of memory"
        r"|fatal error: (?:runtime: )?(?:out of memory|cannot allocate memory)|\bmemory allocation of \d+ bytes failed"
        r"|Error: cannot allocate vector of size|Error: vector memory (?:exhausted|limit of)"
        r"|\bnot enough memory: you tried to allocate|luajit: not enough memory|System\.OutOfMemoryException"
        # torch's allocator of the host, DyNet, xgboost and LightGBM, TensorFlow's allocator of the host.
        r"|DefaultCPUAllocator: (?:can't|not enough)|CPU memory allocation failed n=|dynet::out_of_memory|\[Fatal\] bad allocation"
        r"|\bOOM when allocating tensor\b.{1,200} by allocator (?:cpu|mklcpu)\b",
        source="runtimes of Java, Node, Go, Rust, Julia, R, Lua and .NET; torch, DyNet, LightGBM, TensorFlow",
        sample="java.lang.OutOfMemoryError: Java heap space",
        near="-XX:+ExitOnOutOfMemoryError -Xmx64g: java.lang.OutOfMemoryError ends this program",
    ),
)
