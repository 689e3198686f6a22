"""Lines about devices of other vendors: Habana, TPU, Neuron, Ascend, Cambricon, MetaX, Moore Threads, Hygon, Kunlun, Graphcore,
Tenstorrent.

What their catalogues have is not here.
"""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_GAUDI = "Linux, drivers/accel/habanalabs; SynapseAI"
_NEURON = "AWS Neuron, runtime: nrt_status.h and the messages of its device layer"
_CANN = "CANN, acl_rt.h: numbers of errors of the runtime"
_TPU = "libtpu: the session of a slice"
# How programs print a number of CANN's.
_ACL = r"(?:error code(?: is)?|[Ee]rr(?:or)?[Cc]ode|ret(?:[Cc]ode)?|Ret|status)(?:[ :=(]|\[){1,3}"

_ecc = partial(Signature, fault="gpu_ecc", layer="device", scope="gpu")
_lost = partial(Signature, fault="gpu_lost", layer="device", scope="gpu")
_links = partial(Signature, fault="nvlink_error", layer="link", scope="gpu")
_ports = partial(Signature, fault="nccl_network", layer="network", scope="node")
_driver = partial(Signature, fault="gpu_xid_other", layer="device", scope="gpu")
_memory = partial(Signature, fault="cuda_oom", layer="program", scope="user")
_kernel = partial(Signature, fault="cuda_illegal_access", layer="program", scope="rank")

VENDORS = (
    # ---- Habana
    _ecc(
        "gaudi-memory",
        r'\bReceived (?:H/W interrupt|event) \d+ ?\[?"?\w*_DERR\b|\bECC (?:event|error)\b.{0,160}\bcritical 1\b'
        r"|\bhabanalabs\b.{0,120}\b(?:double(?:-bit)? (?:ECC )?error|uncorrectable ECC)\b",
        source=_GAUDI,
        sample='habanalabs hl2: Received H/W interrupt 412 ["HBM_2_DERR"]',
        near='habanalabs hl2: Received H/W interrupt 411 ["HBM_2_SERR"]',
    ),
    Signature(
        "gaudi-memory-corrected",
        r'\bReceived (?:H/W interrupt|event) \d+ ?\[?"?\w*_SERR\b|\bECC (?:event|error)\b.{0,160}\bcritical 0\b',
        fault="",
        layer="device",
        scope="gpu",
        weight="benign",
        source=_GAUDI + ": one bit, which was corrected",
        sample='habanalabs hl2: Received H/W interrupt 411 ["HBM_2_SERR"]',
        near='habanalabs hl2: Received H/W interrupt 412 ["HBM_2_DERR"]',
    ),
    _ports(
        "gaudi-link-down",
        r"\bhabanalabs(?:_cn)?\b.{0,60}\b(?P<subject>(?:NIC \d+ )?[Pp]ort ?\d+):? link (?:is )?down\b",
        role="interrupted",
        source=_GAUDI + ": its ports connect the cards of a node, and nodes",
        sample="habanalabs 0000:19:00.0: port 8: link is down",
        near="habanalabs 0000:19:00.0: port 8: link is up",
    ),
    _ports(
        "gaudi-link-up",
        r"\bhabanalabs(?:_cn)?\b.{0,60}\b(?P<subject>(?:NIC \d+ )?[Pp]ort ?\d+):? link (?:is )?up\b",
        role="cleared",
        weight="supporting",
        source=_GAUDI,
        sample="habanalabs 0000:19:00.0: port 8: link is up",
        near="habanalabs 0000:19:00.0: port 8: link is down",
    ),
    _driver(
        "gaudi-was-reset",
        r"\bsynStatus ?=? ?(?:synStatus )?\d+ \[Device (?:reset|in reset|is in reset|error)\]"
        r"|\bsynDeviceSynchronize\b.{0,60}\bDevice (?:reset|error)\b",
        source=_GAUDI + ": the driver reset the device under the program",
        sample="RuntimeError: FATAL ERROR :: MODULE:PT_SYNHELPER synStatus 20 [Device reset]",
        near="RuntimeError: synStatus=20 [Device already acquired] Device acquire failed.",
    ),
    # ---- TPU
    _driver(
        "tpu-session-failed",
        r"\bSession (?:master )?(?:is failing|detected TPU session error)\b|\bSLICE_FAILURE_(?:CHIP|HW|SW)_?\w*ERROR\b"
        r"|\bTPU (?:chip|core|device) \S{1,20} (?:is )?(?:unhealthy|in (?:a )?bad state)\b",
        source=_TPU,
        sample="E0511 18:18:50.796852 915 tpunetd_client.cc:311] Detected failure SLICE_FAILURE_CHIP_DRIVER_ERROR in session e6",
        near="I0511 18:18:50.796852 915 tpunetd_client.cc:311] Session e6 was started",
    ),
    _links(
        "tpu-link-failed",
        r"\bSLICE_FAILURE_ICI_\w+|\bICI link (?:fatal error|is down|went down|failure|failed)\b",
        source=_TPU + ": links between its chips",
        sample="E0511 18:18:50.796852 915 tpunetd_client.cc:311] Detected failure SLICE_FAILURE_ICI_LINK_DOWN in session e6",
        near="I0511 18:18:50.796852 915 tpunetd_client.cc:311] ICI links are up in session e6",
    ),
    # ---- Neuron
    _ecc(
        "neuron-memory",
        r"\bNRT_EXEC_HW_ERR_(?:REPAIRABLE_)?(?:HBM|NC|SRAM)_UE\b|\bencountered (?:an )?uncorrectable \w+ error on Neuron"
        r"|\bnd\d+ \w+ uncorrectable error count (?:has )?increased",
        source=_NEURON,
        sample="ERROR  TDRV:exec_request  (FATAL-RT-UNDEFINED-STATE) encountered uncorrectable memory error on Neuron Device: 3.",
        near="INFO  TDRV:exec_request  no uncorrectable memory error on Neuron Device: 0.",
    ),
    _driver(
        "neuron-hardware",
        r"\bNRT_EXEC_HW_ERR_(?:COLLECTIVES|DMA_ABORT)\b|\b(?:execution|inference) timeout \(\d+ ms\) on Neuron Device \d+"
        r"|\bencountered DMA (?:aborts?|errors?) on Neuron",
        source=_NEURON,
        sample="ERROR  TDRV:exec  (FATAL-RT-UNDEFINED-STATE) execution timeout (30000 ms) on Neuron Device 3 NC 1, waiting for",
        near="INFO  TDRV:exec  execution timeout is 30000 ms on Neuron Device 3",
    ),
    Signature(
        "neuron-collectives",
        r"\bmissing collectives status on Neuron Device\b|\bsuspected hang in collectives operation\b",
        fault="nccl_timeout",
        layer="collective",
        scope="rank",
        source=_NEURON,
        sample="ERROR  TDRV:exec  missing collectives status on Neuron Device 0 NC 0, suspected hang in collectives operation 0",
        near="INFO  TDRV:exec  collectives status on Neuron Device 0 NC 0 is good",
    ),
    # ---- Ascend
    _ecc(
        "ascend-device-memory",
        _ACL + r"(?:50705[345])\b|\b(?i:hbm multi[- ]bit ecc error)\b|\b(?:0x)?80E01801\b"
        r"|\bDouble Bit Error Count +: [1-9]",
        source=_CANN + "; npu-smi info -t ecc; fault codes of the driver",
        sample="RuntimeError: ACL stream synchronize failed, error code:507054",
        near="RuntimeError: ACL stream synchronize failed, error code:507046",
    ),
    _lost(
        "ascend-device-lost",
        _ACL + r"(?:507010|507901|507902)\b|(?i:\bdevice heart ?beat (?:is )?lost\b)"
        r"|\[(?:devmm|devdrv|drv|hdc)\].{0,60}\bdevice \d+ is lost\b",
        source=_CANN + ": the task scheduler of the device, or the channel to it, is silent",
        sample="[ERROR] RUNTIME(812,python): [engine.cc:1212] Task execute failed, retCode=507010, heartbeat lost",
        near="[INFO] RUNTIME(812,python): [runtime.cc:1540] heartbeat thread started, device_id=3",
    ),
    _links(
        "ascend-link-failed",
        _ACL + r"50705[67]\b|\bHCCS (?:link )?(?:fault|failure|is down|link down|link error)\b",
        source=_CANN + ": links between devices",
        sample="RuntimeError: ACL stream synchronize failed, error code:507056",
        near="RuntimeError: ACL stream synchronize failed, error code:507018",
    ),
    _memory(
        "ascend-memory-of-device",
        _ACL + r"207001\b",
        source=_CANN + ": ACL_ERROR_RT_MEMORY_ALLOCATION",
        sample="[Error]: rtMalloc failed, error code is 207001",
        near="[Error]: rtMalloc failed, error code is 107002",
    ),
    # ---- Cambricon, MetaX, Moore Threads, Kunlun, Enflame, Iluvatar: the words of CUDA with other initials
    _memory(
        "vendor-memory",
        r"\b(?:musa|mc|cnrt|tops|ipu|gcu|supa)Error(?:MemoryAllocation|OutOfMemory|NoMem\w*)\b|\bMLU memory exhausted\b"
        r"|\b(?:MUSA|MACA|MLU|GCU|SUPA|IPU|DCU|TPU|Gaudi) out of memory\b|\bXPUERR_NOMEM\b|\bCN_(?:MEMORY_)?ERROR_OUT_OF_MEMORY\b"
        r"|\bCNRT_RET_ERR_(?:NOMEM|MALLOC)\b"
        r"|\bOut of Memory: Not enough space to allocate \d+ B (?:L1|DRAM)|\bpoplar::\w*memory_allocation_error\b",
        source="MUSA, MACA, CNRT, XPU runtime, tt-metal, Poplar",
        sample="[CNNL] [Error]: cnrtMalloc failed: cnrtErrorNoMem on device 3",
        near="[CNNL] [Info]: cnrtMalloc of 2 GiB on device 3",
    ),
    _kernel(
        "vendor-kernel",
        r"\b(?:musa|mc|cnrt|tops|supa)Error(?:IllegalAddress|LaunchFailure|LaunchFailed|Assert|MisalignedAddress|KernelTrap"
        r"|Illegal\w+)\b|\bCN_INVOKE_ERROR_(?:ADDRESS_SPACE|MEMORY|ILLEGAL\w*|UNALIGNED\w*)\b",
        source="MUSA, MACA, CNRT",
        sample="RuntimeError: MACA: mcErrorIllegalAddress in mcStreamSynchronize",
        near="RuntimeError: MACA: mcErrorInvalidValue in mcMalloc",
    ),
    _driver(
        "vendor-device",
        r"\bCN_ERROR_MLU_UNRECOVERABLE\b|\bMLU unrecoverable error\b|\bXPUERR_(?:KERNEL_TIMEOUT|TIMEOUT|INTR|DEVSTOP|ECC|HW\w*)\b"
        r"|\b[Pp]op(?:lar|torch)\w*[:._]+(?:un)?recoverable_?[Rr]untime_?[Ee]rror\b|\bpoptorch\.(?:Unr|R)ecoverableRuntimeError\b"
        r"|\[MX(?:KW|CD|DRV)\]\[E\].{0,120}\bfailed\b|\bhydcu\b.{0,80}(?:\bring \S+ timeout\b|\bGPU reset begin!)"
        r"|\b(?:mtgpu|metax|hydcu|iluvatar|cambricon\w*|mxgpu)\b.{0,120}\b(?:hang|lockup|hung|reset failed|reset GPU failed)\b",
        source="CNRT, XPU runtime, Poplar, MACA and the kernel drivers of these devices",
        sample="hydcu 0000:5d:00.0: hydcu: ring comp_1.1.0 timeout, signaled seq=221, emitted seq=223",
        near="hydcu 0000:5d:00.0: hydcu: ring comp_1.1.0 was added",
    ),
    # ---- Tenstorrent
    _lost(
        "tenstorrent-silent",
        r"\b(?:Timed out while|Timeout \(\d+ ms\)) waiting for (?:active ethernet core|physical cores) "
        r"|\bTry resetting the board\b",
        source="tt-metal: cores of the board do not answer until it is reset",
        sample="TT_THROW: Device 3: Timed out while waiting for physical cores to finish: 18-18.",
        near="Device 3: waiting for physical cores to finish",
    ),
    _driver(
        "intel-engine-reset",
        r"\b(?:xe|i915) [0-9a-f:.]{7,12}: .{0,40}(?:\bEngine reset: engine_class=|\bXe device coredump has been created"
        r"|\bResetting (?:chip|rcs\d|ccs\d|bcs\d) for\b|\bGPU HANG: ecode)",
        source="Linux, drivers/gpu/drm/xe and i915: an engine was reset, as what ran on it did not end",
        sample="xe 0000:2c:00.0: [drm] GT0: Engine reset: engine_class=ccs, logical_mask: 0x1, guc_id=3",
        near="xe 0000:2c:00.0: [drm] GT0: engine class=ccs is enabled",
    ),
)
