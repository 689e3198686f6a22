"""Lines about devices: of hardware drivers in the kernel log, and of libraries that name the device."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_GPU = r"(?P<gpu>[0-9a-fA-F]{2,8}:[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2})?(?:\.[0-9a-fA-F])?)"
# The driver's own lines, and those of the device plugin for Kubernetes about them.
# People who show a log to others take the address out.
_XID = (
    rf"(?:\bXid \((?:(?:PCI:)?{_GPU}(?: GPU-I:\d+)?|(?:PCI:)?[^)\w]{{1,20}}|(?:PCI:)?[xX*:.]{{1,20}})\): "
    r"|XidCriticalError: Xid=)"
)
_XIDS = "NVIDIA, Xid errors, catalogue of 2025"
# How monitors repeat an Xid.
_REPEATED_XID = r"\b(?:XID|Xid|xid)(?: [Ee]rror)?(?: [Cc]ode)?(?: detected)?[ :=#]{1,3}"
_MONITORS = "monitors of nodes and device plugins, which repeat the number of an Xid"
# Of Xids without a row of their own.
_UNLISTED = (
    r"[1-79]|1[025-9]|2[0-46-9]|30|3[3-6]|47|49|5[0-3]|55|59|76|9[018]|142|151|166|17[03-9]|1[89]\d"
)
_CUDA = "CUDA runtime, cudaGetErrorString"
_AMD = "Linux, drivers/gpu/drm/amd/amdgpu"
_PCI = "Linux, drivers/pci/pcie"

_ecc = partial(Signature, fault="gpu_ecc", layer="device", scope="gpu", is_lasting=True)
_lost = partial(Signature, fault="gpu_lost", layer="device", scope="gpu", is_lasting=True)
_nvlink = partial(Signature, fault="nvlink_error", layer="link", scope="gpu", is_lasting=True)
_power = partial(Signature, fault="thermal_power", layer="device", scope="node", is_lasting=True)
_driver = partial(Signature, fault="gpu_xid_other", layer="device", scope="gpu")
_after_fault = partial(Signature, fault="gpu_xid_other", layer="consequence", scope="gpu")
_supporting = partial(Signature, fault="", layer="device", scope="node", weight="supporting")
_benign = partial(Signature, fault="", layer="device", scope="node", weight="benign")

DEVICE = (
    _ecc(
        "xid-ecc",
        _XID + r"(?P<xid>48|64|95|140|168|171|172)\b",
        source=_XIDS,
        sample="NVRM: Xid (PCI:0000:3b:00): 48, pid=4242, name=python3, An uncorrectable double bit "
        "error (DBE) has been detected on GPU",
        near="NVRM: Xid (PCI:0000:3b:00): 43, pid=4242, name=python3, Ch 00000010",
    ),
    _ecc(
        "xid-ecc-contained",
        _XID + r"(?P<xid>94)\b",
        is_lasting=False,
        source=f"{_XIDS}: contained; the application restarts, the GPU stays",
        sample="NVRM: Xid (PCI:0000:5e:00): 94, pid=991, name=python, Contained: SM (0x1). RST: No, D-RST: No",
        near="NVRM: Xid (PCI:0000:5e:00): 9, pid=991, name=python, Driver error programming GPU",
    ),
    _ecc(
        "xid-after-ecc",
        _XID + r"(?P<xid>45), .*caused by previous Xid (?:48|64|9[45]|140|17[12])\b",
        source=_XIDS + ": the clean-up names the Xid before it, whose line may be lost",
        sample="NVRM: Xid (PCI:0000:3b:00): 45, pid=77001, name=pt_main, Ch 00000004 caused by previous Xid 95",
        near="NVRM: Xid (PCI:0000:3b:00): 45, pid=77001, name=pt_main, Ch 00000004 caused by previous Xid 31",
    ),
    _ecc(
        "ecc-uncorrectable",
        r"(?i)all reserved rows for bank are remapped|row[- ]remap(?:ping|per)? (?:has )?failed"
        r"|remap\w* failure(?: occurred)?\s*: yes|error: uncorrectable ECC error"
        r"|\b[1-9]\d* uncorrectable ECC errors?|uncorrectable ECC error encountered"
        r"|ECC uncorrectable error|detected (?:an )?uncorrectable ECC error|double[- ]bit ECC error",
        source=_CUDA + "; NVML, nvmlDeviceGetRemappedRows",
        sample="RuntimeError: CUDA error: uncorrectable ECC error encountered",
        near="ECC errors: corrected 3, uncorrected 0 since boot",
    ),
    _ecc(
        "cuda-ecc",
        r"cudaErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE|hipErrorECCNotCorrectable"
        r"|hipErrorECCUncorrectable",
        source=_CUDA,
        sample="terminate called: cudaErrorECCUncorrectable while copying to the host",
        near="cudaErrorInvalidValue while copying to the host",
    ),
    _lost(
        "xid-lost",
        _XID + r"(?P<xid>79|167)\b",
        source=_XIDS,
        sample="NVRM: Xid (PCI:0000:a1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        near="NVRM: Xid (PCI:0000:a1:00): 7, pid=12, name=x, Invalid or corrupted push buffer address",
    ),
    _ecc(
        "xid-ecc-repeated",
        _REPEATED_XID + r"(?P<xid>48|64|9[45]|140|171|172)\b",
        is_lasting=False,
        source=_MONITORS,
        sample="gpud: component gpu-3 is unhealthy: XID 95 was found in the kernel's log",
        near="gpud: component gpu-3 is unhealthy: XID 31 was found in the kernel's log",
    ),
    _nvlink(
        "xid-nvlink-repeated",
        _REPEATED_XID + r"(?P<xid>74|14[4-9]|150)\b",
        is_lasting=False,
        source=_MONITORS,
        sample="node-problem-detector: condition GpuXid is now true: Xid error 74 on node n3",
        near="node-problem-detector: condition GpuXid is now true: Xid error 43 on node n3",
    ),
    _lost(
        "xid-lost-repeated",
        _REPEATED_XID + r"(?P<xid>79|167)\b",
        is_lasting=False,
        source=_MONITORS,
        sample="gpud: component gpu-3 is unhealthy: XID 79 was found in the kernel's log",
        near="gpud: component gpu-3 is unhealthy: XID 13 was found in the kernel's log",
    ),
    _lost(
        "gpu-off-the-bus",
        rf"(?:NVRM: GPU (?:at )?(?:PCI:)?{_GPU}.*fallen off the bus|"
        r"fallen off the bus and is not responding)",
        source="NVIDIA kernel module, messages without an Xid",
        sample="NVRM: GPU 0000:4f:00.0: GPU has fallen off the bus.",
        near="NVRM: GPU 0000:4f:00.0: RmInitAdapter succeeded, the GPU is on the bus",
    ),
    _lost(
        "gpu-does-not-start",
        r"NVRM: .*(?:RmInitAdapter failed|rm_init_adapter failed|unexpected WPR2 already up|Cannot initialize GSP firmware"
        r"|likely in a bad state and may need to be reset|GPU likely needs to be reset)|amdgpu.*Fatal error during GPU init",
        source="NVIDIA kernel module; Linux, drivers/gpu/drm/amd: the driver cannot bring the GPU, or its firmware, up",
        sample="NVRM: GPU 0000:66:00.0: RmInitAdapter failed! (0x62:0x55:2477)",
        near="NVRM: GPU 0000:66:00.0: RmInitAdapter succeeded",
    ),
    _lost(
        "gpu-firmware-silent",
        r"\bNVRM: .*\b(?:GSP RM|LibOS|GSP) heartbeat timed out|\bNVRM: _kgspIsHeartbeatTimedOut: ",
        source="NVIDIA kernel module, kernel_gsp.c: the GPU's firmware does not answer any more",
        sample="NVRM: _kgspRpcRecvPoll: GSP RM heartbeat timed out",
        near="NVRM: _kgspRpcRecvPoll: GSP RM heartbeat is on time",
    ),
    _lost(
        "gpu-not-counted",
        r"gres/gpu\S* count reported lower than configured|gres/gpu\S* count too low",
        scope="node",
        is_lasting=False,
        source="Slurm, slurmctld: a node registers with fewer GPUs than it is configured to have",
        sample="error: Setting node a3-17 state to INVAL with reason:gres/gpu count reported lower than configured (7 < 8)",
        near="gres/gpu count changed on node a3-17 to 8",
    ),
    _lost(
        "gpu-named-before-lost",
        r"NVRM: The NVIDIA GPU " + _GPU + r"[ \t\r]*$",
        role="names-gpu",
        weight="supporting",
        is_lasting=False,
        source="NVIDIA kernel module: the first of three lines, which names the GPU",
        sample="NVRM: The NVIDIA GPU 0000:2a:00.0",
        near="NVRM: The NVIDIA GPU driver has been loaded",
    ),
    _lost(
        "gpu-is-lost",
        r"(?i)\bGPU is lost\b"
        r"|Unable to determine the device handle for (?:GPU|gpu)\s*(?P<gpu>[0-9a-fA-F:.]+)"
        r"|no CUDA-capable device is detected|CUDA-capable device\(s\) is/are busy or unavailable"
        r"|CUDA_ERROR_NO_DEVICE|hipErrorNoDevice|NVML_ERROR_GPU_IS_LOST"
        r"|GPU access blocked by the operating system|GPU requires reset|NVIDIA Corporation .*\(rev ff\)",
        source=_CUDA + "; NVML, nvmlErrorString",
        sample="Unable to determine the device handle for GPU 0000:66:00.0: GPU is lost.  Reboot the system to recover this GPU",
        near="no loss of accuracy on GPU was detected; the CUDA-capable device is ready",
    ),
    _lost(
        "no-gpu-visible",
        r"No CUDA GPUs are available|No HIP GPUs are available|^No devices were found[ \t\r]*$",
        layer="program",
        scope="rank",
        is_lasting=False,
        source="torch, c10/cuda: as often CUDA_VISIBLE_DEVICES, or the job's share of GPUs, as a GPU that is gone",
        sample="RuntimeError: No CUDA GPUs are available",
        near="4 CUDA GPUs are available",
    ),
    _nvlink(
        "xid-nvlink",
        _XID + r"(?P<xid>74|136|144|145|146|147|148|149|150|155)\b",
        source=_XIDS,
        sample="NVRM: Xid (PCI:0000:87:00): 74, pid=1201, NVLink: fatal error detected on link "
        "4(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
        near="NVRM: Xid (PCI:0000:87:00): 32, pid=1201, Channel ID 00000012 intr0 00040000",
    ),
    _nvlink(
        "nvlink-5-nonfatal",
        r"NVRM: Xid \([^)]*\): (?:14[4-9]|150), \w+\s+Nonfatal\b",
        fault="",
        weight="benign",
        is_lasting=False,
        source=_XIDS + ": not fatal",
        sample="NVRM: Xid (PCI:0003:01:00): 145, RLW_CTRL  Nonfatal XC0 i0 Link 05 (0x00000004 0x00000000 0x00000000)",
        near="NVRM: Xid (PCI:0003:01:00): 145, RLW_CTRL  Fatal XC0 i0 Link 05 (0x00000004 0x00000000 0x00000000)",
    ),
    _nvlink(
        "xid-after-nvlink",
        _XID + r"(?P<xid>45), .*caused by previous Xid (?:74|14[4-9]|150)\b",
        source=_XIDS + ": the clean-up names the Xid before it, whose line may be lost",
        sample="NVRM: Xid (PCI:0000:18:00): 45, pid=77001, name=pt_main, Ch 00000004 caused by previous Xid 144",
        near="NVRM: Xid (PCI:0000:18:00): 45, pid=77001, name=pt_main, Ch 00000004 caused by previous Xid 13",
    ),
    _nvlink(
        "nvlink-uncorrectable",
        r"(?i)uncorrectable NVLink error|cudaErrorNvlinkUncorrectable"
        r"|CUDA_ERROR_NVLINK_UNCORRECTABLE|NVLink: fatal error detected"
        r"|nvlink .*(?:is|went) (?:down|inactive)\b",
        source=_CUDA,
        sample="CUDA error: uncorrectable NVLink error detected during the execution",
        near="NVLink is up on all 18 links; 0 uncorrectable errors",
    ),
    _nvlink(
        "xgmi-uncorrectable",
        r"amdgpu (?P<device>[0-9a-f:.]+): .*(?:\b[1-9]\d* (?:new )?uncorrectable hardware errors detected "
        r"in (?:total in )?xgmi\w* block|\b(?:XGMI|XGMI3X16|WAFL) PCS \w+ detected)",
        source=f"{_AMD}, amdgpu_ras.c and amdgpu_xgmi.c",
        sample="amdgpu 0000:c1:00.0: amdgpu: socket: 1, die: 0, 2 new uncorrectable hardware errors detected in xgmi_wafl block",
        near="amdgpu 0000:c1:00.0: amdgpu: socket: 1, die: 0, 2 new uncorrectable hardware errors detected in umc block",
    ),
    _nvlink(
        "sxid-fatal",
        r"nvidia-nvswitch\d+: SXid \((?:PCI:)?(?P<switch>[0-9a-fA-F:.]+)\): (?P<sxid>\d+), Fatal\b"
        r"|nvidia-nvswitch\d+: SXid \([^)]*\): (?:12028|19084|11004|20034|22003),",
        scope="node",
        source="NVIDIA NVSwitch driver; its links fall with the GPU at their other end",
        sample="nvidia-nvswitch2: SXid (PCI:0000:c3:00.0): 20034, Fatal, Link 12 LTSSM Fault Up",
        near="nvidia-nvswitch2: SXid (PCI:0000:c3:00.0): 11012, Non-fatal, Link 12 single bit ECC",
    ),
    _nvlink(
        "nvswitch-fatal",
        r"(?i)detected NVSwitch fatal error"
        r"|fabric ?manager.*(?:[^-a-z]fatal|failed to (?:initialize|configure))"
        r"|CUDA error: system not yet initialized|cudaErrorSystemNotReady"
        # Of the log of the fabric manager, and of IMEX.
        r"|\] \[(?:ERROR|CRITICAL)\] \[tid \d+\] (?:failed|unable|fatal|cannot|could not|detected (?:an? )?nvlink"
        r"|.{1,100}\b(?:is not reachable|lost|timed out|has failed))",
        scope="node",
        is_lasting=False,
        source="NVIDIA fabric manager; CUDA runtime, cudaErrorSystemNotReady",
        sample="detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci 00000000:C5:00.0 physical id 9 port 41",
        near="nv-fabricmanager[5183]: detected NVSwitch non-fatal error 20001 on fid 0",
    ),
    _power(
        "xid-power-thermal",
        _XID + r"(?P<xid>54)\b",
        scope="gpu",
        source=_XIDS + " (54: auxiliary power not connected)",
        sample="NVRM: Xid (PCI:0000:17:00): 54, GPU is lacking auxiliary power",
        near="NVRM: Xid (PCI:0000:17:00): 45, pid=88, Ch 00000001",
    ),
    _power(
        "thermal-slowdown",
        r"(?i)(?:hw|hardware)[ _](?:thermal[ _]|power[ _]brake[ _])?slowdown(?:\s*(?::|=|is))? ?active\b"
        r"|(?:hw|hardware) (?:thermal|power brake) slowdown (?:is |was )?(?:engaged|detected|"
        r"asserted)"
        r"|\bpower[ _]brake slowdown, |throttled: (?:sw|hw) thermal"
        r"|due to (?:hw |sw )?thermal (?:slowdown|violation)|GPU.{0,40}\b(?:has overheated|overheat(?:ed|ing))"
        r"|WARN: GPU is throttled|critical temperature reached|thermal (?:shutdown|runaway)"
        r"|(?:core|package) power limit notification|under-?voltage detected"
        r"|performance (?:is )?capped due to (?:hw|hardware) (?:thermal|power)",
        source="Linux, arch/x86/kernel/cpu/mce/therm_throt.c; NVML clock event reasons",
        sample="nvidia-smi: HW Thermal Slowdown : Active",
        near="nvidia-smi: HW Thermal Slowdown : Not Active",
    ),
    _power(
        "sensor-of-heat",
        r"\| Temperature [^|]{1,60}\| Upper (?:Critical|Non-recoverable) going high +(?:\| (?:Asserted|Reading)|$)"
        r"|\| Fan [^|]{1,60}\| Lower (?:Critical|Non-recoverable) going low +(?:\| (?:Asserted|Reading)|$)",
        source="ipmitool, sel list and sel elist",
        sample="281 | 11/01/2026 | 22:23:20 | Temperature Inlet | Upper Critical going high | Reading 44 > Threshold 43 degrees C",
        near="281 | 11/01/2026 | 22:23:20 | Temperature Inlet | Upper Critical going high | Deasserted",
    ),
    _power(
        "sensor-of-power",
        r"\| (?:Voltage|Current|Power Supply) [^|]{1,60}\| (?:Upper|Lower) (?:Critical|Non-recoverable) going \w+ +"
        r"(?:\| (?:Asserted|Reading)|$)",
        fault="host_hardware",
        layer="machine",
        source="ipmitool, sel list and sel elist",
        sample="282 | 11/01/2026 | 22:23:20 | Voltage P12V | Lower Critical going low | Reading 10.1 < Threshold 10.8 Volts",
        near="282 | 11/01/2026 | 22:23:20 | Voltage P12V | Lower Critical going low | Deasserted",
    ),
    _power(
        "power-supply",
        r"(?i)power supply \S+ (?:.*\b)?(?:fail(?:ed|ure)|lost|redundancy lost)"
        r"|PSU ?\d* .*(?:fail(?:ed|ure)|input lost|AC lost)",
        fault="host_hardware",
        layer="machine",
        source="IPMI sensor texts; Linux, mlx5_core",
        sample="ipmi: Power Supply 2 failed, input lost",
        near="power supply 1 input restored, redundancy regained",
    ),
    _driver(
        "xid-other",
        rf"{_XID}(?P<xid>46|56|57|58|60|61|62|65|68|69|73|8[0-9]|9[67]|109|11[0-9]|12[02-9]|"
        r"13[0-589]|143|15[689]|169)\b",
        source=_XIDS,
        sample="NVRM: Xid (PCI:0000:e1:00): 119, pid=77, name=nvidia-smi, Timeout after 6s of "
        "waiting for RPC response from GPU7 GSP! Expected function 76",
        near="NVRM: Xid reporting is enabled on GPU7 GSP",
    ),
    _after_fault(
        "xid-of-programs",
        _XID + r"(?P<xid>8|11|13|25|31|32|39|4[0-4]|7[0-2578]|99|10[0-5]|137)\b",
        source=_XIDS + ": caused by programs as often as by hardware",
        sample="NVRM: Xid (PCI:0000:0f:00): 31, pid=5150, name=python3, Ch 00000008, intr 10000000. "
        "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_3 faulted @ 0x7f2a_00000000",
        near="NVRM: Xid (PCI:0000:0f:00): 310, an unlisted number",
    ),
    _after_fault(
        "xid-cleanup",
        _XID + r"(?P<xid>45|154)\b",
        weight="supporting",
        source=_XIDS + ": follows another, or the end of a process",
        sample="NVRM: Xid (PCI:0000:0f:00): 45, pid=5150, name=python3, Ch 00000008",
        near="NVRM: Xid (PCI:0000:0f:00): 5, pid=5150, name=python3, Ch 00000008",
    ),
    _after_fault(
        "xid-to-ignore",
        _XID + r"(?P<xid>14|3[78]|63|6[67]|9[23]|10[678]|121|137|141|15[237]|16[0-5])\b",
        fault="",
        weight="supporting",
        source=_XIDS
        + ": NVIDIA's resolution is to ignore it: a row was remapped, a test, a privilege error",
        sample="NVRM: Xid (PCI:0000:5e:00): 63, pid=991, name=python, Row Remapper: New row marked for remapping",
        near="NVRM: Xid (PCI:0000:5e:00): 64, pid=991, name=python, Row Remapper: Error attempting to remap",
    ),
    _after_fault(
        "xid-recovery-wanted",
        _XID + r"(?P<xid>154), GPU recovery action changed from \S+ \([^)]*\) to 0x[1-9]",
        is_lasting=True,
        source=_XIDS + ": the driver's own verdict",
        sample="NVRM: Xid (PCI:0001:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
        near="NVRM: Xid (PCI:0001:01:00): 154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)",
    ),
    _driver(
        "gpu-driver-fault",
        r"(?i)nouveau\s+\S+\s+(?:fifo|gr):.*(?:fault|killed)"
        r"|NVRM:.*(?:GSP|gsp).*(?:heartbeat|RPC).*(?:timeout|timed out)"
        r"|Failed to initialize NVML: (?:Unknown|GPU)"
        r"|nouveau\s+\S+\s+\w+: .*(?:\bTRAP\b|lockup|SCHED_ERROR|timed? ?out|\berror\b)"
        r"|Detected Critical Xid Error|GPU requires (?:a )?reset\b"
        # Of Moore Threads: the kernel's own report of a core that was reset.
        r"|\bMTGPU:.{0,120}(?:\bGuilty Lockup\b|\bFAULT:)"
        r"|GPU HANG: ecode|\bxe \S+: .*Timedout job: seqno|VRAM is lost due to GPU reset"
        r"|(?:kernel BUG at|WARNING: CPU: \d+ PID: \d+ at) drivers/gpu/drm/"
        r"|\[drm:\w+(?: \[\w+\])?\] \*ERROR\* .*(?:GPU|engine).*(?:timeout|reset|hang|fault)",
        source="Linux, drivers/gpu/drm/nouveau; NVIDIA kernel module; drivers of other vendors",
        sample="nouveau 0000:01:00.0: fifo: fault 01 [WRITE] at 0000000000000000 engine 06 [HOST0]",
        near="nouveau 0000:01:00.0: fifo: 32 channels available",
    ),
    _after_fault(
        "cuda-unexplained",
        r"(?:CUDA|HIP) error: (?:unknown error|"
        r"the launch timed out and was terminated|all CUDA-capable devices are busy|"
        r"an unexpected error)"
        r"|cudaErrorUnknown\b|CUDA_ERROR_UNKNOWN\b"
        r"|HSA_STATUS_ERROR_(?:EXCEPTION|HARDWARE)\b|CUDA unknown error",
        source=_CUDA,
        sample="RuntimeError: CUDA error: unknown error",
        near="CUDA error checks are enabled; an unknown option was ignored",
    ),
    _ecc(
        "amd-uncorrectable",
        # Those of the block xgmi_wafl are about a link.
        r"amdgpu.*\b[1-9]\d* (?:new )?uncorrectable hardware errors detected in (?:total in )?[^x\W]\w* block"
        r"|amdgpu.*uncorrectable hardware error\(ERREVENT_ATHUB_INTERRUPT\)"
        r"|amdgpu.*Saved bad pages \d+ reaches threshold|amdgpu.*Uncorrectable error detected in UMC inst",
        source=_AMD,
        sample="amdgpu 0000:c1:00.0: amdgpu: socket: 3, die: 0, 1 new uncorrectable hardware errors detected in umc block",
        near="amdgpu 0000:c1:00.0: amdgpu: socket: 3, die: 0, 0 new uncorrectable hardware errors detected in umc block",
    ),
    _ecc(
        "amd-deferred",
        r"amdgpu (?P<device>[0-9a-f:.]+): .*\b[1-9]\d* (?:new )?deferred hardware errors "
        r"detected in (?P<block>\w+) block",
        weight="supporting",
        is_lasting=False,
        source=f"{_AMD}, amdgpu_ras.c: data that no program has read yet; its page is retired",
        sample="amdgpu 0000:c1:00.0: amdgpu: socket: 3, die: 0, 1 new deferred hardware errors detected in umc block",
        near="amdgpu 0000:c1:00.0: amdgpu: socket: 3, die: 0, 1 deferred hardware errors detected in total in umc block",
    ),
    _benign(
        "amd-corrected",
        r"amdgpu (?P<device>[0-9a-f:.]+): .*\b[1-9]\d* (?:new )?correctable hardware errors "
        r"detected in (?P<block>\w+) block",
        source=f"{_AMD}, amdgpu_ras.c: no user action is needed, as older drivers add",
        sample="amdgpu 0000:c1:00.0: amdgpu: socket: 4, die: 0, 1 new correctable hardware errors detected in umc block",
        near="amdgpu 0000:c1:00.0: amdgpu: socket: 4, die: 0, 7 correctable hardware errors detected in total in umc block",
    ),
    _driver(
        "amd-gpu-reset",
        r"amdgpu.*(?:GPU reset begin!|Mode2 reset failed|"
        r"poison is consumed|poison consumption|qcm fence wait loop timeout)",
        source=_AMD,
        sample="amdgpu 0000:83:00.0: amdgpu: GPU reset begin!",
        near="amdgpu 0000:83:00.0: amdgpu: GPU recovery is enabled",
    ),
    _lost(
        "amd-reset-failed",
        r"\b(?:amdgpu|drm)\b.*(?:GPU reset end with ret = -\d|GPU reset\(\d+\) failed|GPU Recovery Failed: -?\d"
        r"|[Mm]ode1 reset failed|ASIC reset failed with error|\bPSP (?:resume failed|create ring failed)"
        r"|resume of IP block <\w+> failed|amdgpu_device_ip_resume failed|Bailing on TDR"
        r"|device wedged, needs recovery)",
        source=_AMD + ", amdgpu_device.c, amdgpu_psp.c: the GPU does not come back from its reset",
        sample="amdgpu 0000:83:00.0: amdgpu: GPU reset end with ret = -62",
        near="amdgpu 0000:83:00.0: amdgpu: GPU reset end with ret = 0",
    ),
    _after_fault(
        "amd-page-fault",
        r"\bamdgpu\b.*\[\w*hub\d*\] (?:[\w\-]+ )?page fault \(src_id|\bamdgpu\b.*\bGPU fault detected: \d"
        r"|\[(?:gfx|mm)hub\d*\] (?:no-retry |retry )?page fault \(|VM_L2_PROTECTION_FAULT_STATUS: ?0x"
        r"|\bamdgpu\b.*\bVM fault \(0x[0-9a-f]+, vmid [1-9]",
        fault="cuda_illegal_access",
        scope="rank",
        source=_AMD
        + ", gmc_v*.c: memory that is not mapped; of a program, as a rule, where no line names hardware",
        sample="amdgpu 0000:83:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:3 pasid:32771)",
        near="amdgpu 0000:83:00.0: amdgpu: [gfxhub0] page faults are retried",
    ),
    _supporting(
        "amd-page-fault-details",
        r"\bamdgpu\b.*(?:\bin page starting at address 0x|Faulty UTCL2 client ID"
        r"|\bin process \S+ pid \d+ thread|\bMORE_FAULTS:|\bWALKER_ERROR:|\bPERMISSION_FAULTS:|\bMAPPING_ERROR:|\bRW: 0x)",
        source=_AMD + ", gmc_v*.c: the lines below that of a page fault",
        sample="amdgpu 0000:83:00.0: amdgpu:   in page starting at address 0x00007f1e20000000 from client 0x1b (UTCL2)",
        near="amdgpu 0000:83:00.0: amdgpu: retired page starting at address 0x00007f1e20000000",
    ),
    _after_fault(
        "amd-ring-timed-out",
        r"amdgpu.*ring \S+ timeout, signaled|drm:amdgpu_job_timedout|ring \S+ timeout, but soft recovered"
        r"|HW Exception by GPU node-\d+.*GPU Hang",
        source=_AMD
        + "; ROCr runtime: work that is never done, of a program as often as of hardware",
        sample="HW Exception by GPU node-1 (Agent handle: 0x5595fa4c5a10) reason :GPU Hang",
        near="[drm] ring gfx_32782.1.1 was added",
    ),
    _lost(
        "amd-firmware-silent",
        r"(?:\bamdgpu\b|\[drm:mes_).*(?:\bMES(?:\(\d+\))? failed to respon[ds]e?\b|MES might be in unrecoverable state"
        r"|SMU is in hanged state|SMU may be not in the right state|SMU: I'm not done with your previous command)",
        source=_AMD + ", mes_v11_0.c, smu_cmn.c: a processor of the GPU answers no more",
        sample="amdgpu 0000:0a:00.0: amdgpu: SMU is in hanged state, failed to send smu message!",
        near="amdgpu 0000:0a:00.0: amdgpu: SMU is resumed successfully!",
    ),
    _lost(
        "pcie-uncorrected",
        r"(?:nvidia|NVRM|amdgpu)\S* .*(?:AER: .*Uncorrect|PCIe Bus Error: severity=Uncorrect)"
        r"|\b(?:nvidia|amdgpu) \S+: (?:[Cc]an't|[Uu]nable to|[Rr]efused to) change power state"
        r"|AER: .*Uncorrect(?:ed|able).*(?:nvidia|amdgpu)|(?:nvidia|amdgpu).*device lost from bus",
        source=_PCI,
        sample="nvidia 0000:17:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
        near="pcieport 0000:15:01.0: AER: Corrected error received: 0000:16:00.0",
    ),
    _supporting(
        "pcie-uncorrected-elsewhere",
        r"AER: .*Uncorrect(?:ed|able) \(Non-Fatal\)"
        r"|PCIe Bus Error: severity=Uncorrect(?:ed|able) \(Non-Fatal\)|DPC: containment event"
        r"|[Dd]etected insufficient power on the PCIe slot",
        source=f"{_PCI}: which device it is stands elsewhere; mlx5_core, at every boot of some machines",
        sample="pcieport 0000:15:01.0: AER: Uncorrected (Non-Fatal) error received: 0000:15:01.0",
        near="pcieport 0000:15:01.0: AER: Corrected error received: 0000:16:00.0",
    ),
    Signature(
        "pcie-fatal-elsewhere",
        r"AER: .*Uncorrect(?:ed|able) \(Fatal\)|PCIe Bus Error: severity=Uncorrect(?:ed|able) \(Fatal\)",
        fault="host_hardware",
        layer="machine",
        scope="node",
        source=f"{_PCI}: the link of a device that the line does not name as a GPU; what the device's own driver says is more",
        sample="pcieport 0000:15:01.0: AER: Uncorrected (Fatal) error received: 0000:15:01.0",
        near="pcieport 0000:15:01.0: AER: Uncorrected (Non-Fatal) error received: 0000:15:01.0",
    ),
    Signature(
        "device-removed",
        r"pciehp.*[Ss]lot\(\S+\): (?:Link Down|Card not present)"
        # Of SPDK, whose reads of a controller's registers fail.
        r"|\bnvme_ctrlr\.c:.{0,60}\bGet registers for [0-9a-f:.]+ failed"
        r"|nvme\S* (?:\S+: )?Removing after probe(?: failure|[ \t\r]*$)"
        # All ones: nothing answers at its address. Without the register it may be either.
        r"|nvme\S* (?:\S+: )?controller is down; will reset: CSTS=0xf{8}\b"
        r"|nvme\S* (?:\S+: )?Device not ready; aborting(?: \w+, CSTS=0xf{8}\b| reset[ \t\r]*$|[ \t\r]*$)",
        fault="device_vanished",
        layer="device",
        scope="node",
        is_lasting=True,
        source="Linux, drivers/pci/hotplug, drivers/nvme/host/pci.c",
        sample="pcieport 0000:20:03.1: pciehp: Slot(12): Card not present",
        near="pcieport 0000:20:03.1: pciehp: Slot(12): Card present",
    ),
    # The line that names the sender, and the first one of the device's own report.
    _benign(
        "pcie-corrected",
        r"AER: (?:Multiple )?Correct(?:ed|able) error (?:message )?received(?: from|:) "
        r"(?P<sender>[0-9a-f]{4,}:[0-9a-f:.]+)"
        r"|(?P<device>[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): (?:AER: )?PCIe Bus Error: "
        r"severity=Correct(?:ed|able)",
        source=f"{_PCI}, aer.c: Corrected until Linux 6.8, Correctable since",
        sample="pcieport 0000:00:1c.4: AER: Correctable error message received from 0000:07:00.0",
        near="pcieport 0000:15:01.0: AER: Uncorrected (Fatal) error received: 0000:16:00.0",
    ),
    Signature(
        "machine-check",
        r"\b(?:CPU \d+: )?Machine Check(?: Event| Exception)?: ?\d+ Bank \d+: [abef][0-9a-f]{15}\b"
        r"|mce: \[Hardware Error\]: CPU \d+: Machine Check Exception|\bSTATUS [abef][0-9a-f]{15} MCGSTATUS"
        r"|\[Hardware Error\]: event severity: (?:fatal|recoverable)|EDAC MC\d+: \d+ UE\b"
        r"|Uncorrected (?:hardware )?memory error",
        fault="host_hardware",
        layer="device",
        scope="node",
        is_lasting=True,
        source="Linux, arch/x86/kernel/cpu/mce; drivers/edac; mcelog. Bits 63 and 61 of a bank's status: valid, and uncorrected",
        sample="mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 7: be00000000800400",
        near="EDAC sbridge MC0: CPU 0: Machine Check Event: 0 Bank 7: 8c00004000010090",
    ),
    _supporting(
        "machine-check-logged",
        r"mce: \[Hardware Error\]: Machine check events logged",
        source="Linux, arch/x86/kernel/cpu/mce/core.c: the events, corrected ones too, are in another log",
        sample="mce: [Hardware Error]: Machine check events logged",
        near="mce: Machine check events are logged to mcelog",
    ),
    _supporting(
        "memory-failure",
        r"Memory failure: 0x[0-9a-f]+: ",
        source="Linux, mm/memory-failure.c: a page with an uncorrected error was taken out of use",
        sample="Memory failure: 0x1f3a80: recovery action for dirty LRU page: Recovered",
        near="Memory failure recovery is enabled",
    ),
    _supporting(
        "memory-corrected",
        r"EDAC MC\d+: \d+ CE\b|\[Hardware Error\]: event severity: corrected"
        r"|Machine Check(?: Event)?: ?\d+ Bank \d+: [89cd][0-9a-f]{15}\b",
        source="Linux, drivers/edac/edac_mc.c; drivers/firmware/efi/cper.c",
        sample="EDAC MC1: 101 CE memory scrubbing error on CPU_SrcID#1_MC#0_Chan#0_DIMM#0",
        near="EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0",
    ),
    _after_fault(
        "xid-any",
        _XID + rf"(?P<xid>{_UNLISTED})\b",
        source=_XIDS + ": any number",
        sample="NVRM: Xid (PCI:0000:0f:00): 30, GPU semaphore access error",
        near="NVRM: Xid reporting is enabled",
    ),
)
