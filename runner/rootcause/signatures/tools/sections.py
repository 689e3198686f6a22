"""Lines of reports that tools print in sections, whose rows mean something below the title of their section only.

A title has the role `section`, and its name in the group `section` or `query`. A row has the role `in-section`, and names its
section by a group: `fabric` for the section `Fabric`. None lasts, as in tables of tools.
"""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_SMI = "nvidia-smi -q"
_NPU = "npu-smi info"
_DIAG = "dcgmi diag, its table"
_FAIL = r" {1,40}\| (?:Fail|FAIL)\b"

_gpu = partial(Signature, layer="device", scope="gpu")
_row = partial(Signature, layer="device", scope="gpu", role="in-section")

TOOL_SECTIONS = (
    Signature(
        "section-of-report",
        r"(?:^|[ \t:\]>|])(?P<section>Remapped Rows|Retired Pages|Fabric|Port \d+|Clocks (?:Event|Throttle) Reasons):?[ \t\r]*$"
        r"|\bindex, ?(?P<query>gpu_recovery_action)\b",
        fault="",
        layer="other",
        scope="node",
        weight="supporting",
        role="section",
        source=f"{_SMI}; ibstat: a title, with its rows indented below it; a query of nvidia-smi, with its rows below it",
        sample="    Remapped Rows",
        near="    Remapped Rows were counted",
    ),
    _row(
        "row-of-memory",
        r"\b(?P<remapped_rows>Pending)[ \t]*: Yes\b"
        r"|\b(?P<retired_pages>Double Bit ECC|Pending(?: Page Blacklist)?)[ \t]*: (?:Yes\b|[1-9])",
        fault="gpu_ecc",
        source=f"{_SMI}: memory waits to be replaced by the next reset, or pages were lost to errors of two bits",
        sample="        Pending                           : Yes",
        near="        Pending                           : No",
    ),
    _row(
        "row-of-fabric",
        r"\b(?P<fabric>Status)[ \t]*: (?:Insufficient|Fail\w*|Unknown|Unhealthy|Timeout|Error|In[vc]\w+|Not (?:Ready|Found)|Missing"
        r"|[A-Z]\w+ (?:Resources|Error|Failure))"
        r"|\b(?P<fabric_health>Route Unhealthy|Incorrect Configuration)[ \t]*: (?:True|Invalid|Incorrect|Incompatible)",
        fault="nvlink_error",
        layer="link",
        source=f"{_SMI}: the GPU did not join the fabric of its NVLinks",
        sample="        Status                            : Insufficient Resources",
        near="        Status                            : Success",
    ),
    _row(
        "row-of-clocks",
        r"\b(?P<clocks>SW Thermal Slowdown)[ \t]*: Active\b",
        fault="thermal_power",
        source=f"{_SMI}: the driver lowers the clocks of a GPU above its limit of temperature; a cap of power is normal",
        sample="        SW Thermal Slowdown               : Active",
        near="        SW Power Cap                      : Active",
    ),
    _row(
        "row-of-port",
        r"\b(?P<port>State): (?:Down|Initializing|Armed)[ \t\r]*$",
        fault="nccl_network",
        layer="network",
        scope="node",
        source="infiniband-diags, ibstat: the port has no link, or no subnet manager made it active",
        sample="\t\tState: Initializing",
        near="\t\tState: Active",
    ),
    _gpu(
        "recovery-action",
        r"\bGPU Recovery Action[ \t]*: (?:(?:GPU |Node )?(?:Reset|Reboot)|Drain and Reset)\b",
        fault="gpu_lost",
        source=f"{_SMI}: the GPU does not work again before its reset, or that of its node",
        sample="    GPU Recovery Action                   : Reset",
        near="    GPU Recovery Action                   : None",
    ),
    _row(
        "row-of-recovery",
        r"(?:^|[ \t:])(?P<gpu_action>\d{1,2}, ?(?:(?:GPU |Node )?(?:Reset|Reboot)|Drain and Reset)\b)",
        fault="gpu_lost",
        source="nvidia-smi --query-gpu=index,gpu_recovery_action",
        sample="1, Reset",
        near="1, None",
    ),
    _gpu(
        "recovery-action-of-links",
        r"\bGPU Recovery Action[ \t]*: Drain P2P\b",
        fault="nvlink_error",
        layer="link",
        source=f"{_SMI}: traffic between GPUs is to end before the GPU is reset",
        sample="    GPU Recovery Action                   : Drain P2P",
        near="    GPU Recovery Action                   : None",
    ),
    _gpu(
        "value-unknown",
        r"\b[A-Z][^:|\n]{1,40}[ \t]{2,}: (?:Unknown Error|GPU is lost|GPU requires reset|Requires reset)[ \t\r]*$"
        r"|\[GPU (?:is lost|requires reset)\]|, \[Unknown Error\]|\[Unknown Error\], ",
        fault="gpu_lost",
        source=f"{_SMI}, and its queries: a value that the GPU does not give",
        sample="        GPU Current Temp                  : Unknown Error",
        near="        GPU Current Temp                  : 41 C",
    ),
    _gpu(
        "health-of-accelerator",
        r"\| *\d+ +(?:Ascend ?)?\d{3}\w{0,4}[ \t]*\| *(?:Alarm|Critical|UNKNOWN)[ \t]*\|"
        r"|\bHealth(?: Status)?[ \t]+: (?:Alarm|Critical)\b"
        r"|\bStatus[ \t]+: (?:Malfunction|Needs [Rr]eset)\b|\bDevice is in malfunction\b",
        fault="gpu_xid_other",
        source=f"{_NPU}; hl-smi -q: what the device says of its health",
        sample="| 3     910B3               | Alarm         | 93.3        40                0    / 0             |",
        near="| 3     910B3               | OK            | 93.3        40                0    / 0             |",
    ),
    _gpu(
        "throttle-status",
        r"\bTHROTTLE_STATUS: THROTTLED\b|\b(?:PROCHOT|VR_THERMAL|HBM_THERMAL|SOCKET_THERMAL)\w*_VIOLATION_STATUS: ACTIVE\b"
        r"|\bErrorCode:GPU_(?:TEMP|THERMAL|POWER)\w*_VIOLATION\b",
        fault="thermal_power",
        source="amd-smi metric",
        sample="            THROTTLE_STATUS: THROTTLED",
        near="            THROTTLE_STATUS: UNTHROTTLED",
    ),
    _gpu(
        "xgmi-errors-counted",
        r"\b(?:Single|Multiple) errors? detected since last read",
        fault="nvlink_error",
        layer="link",
        source="rocm-smi --showxgmierr",
        sample="GPU[2]\t\t: XGMI Error count: Multiple errors detected since last read",
        near="GPU[2]\t\t: XGMI Error count: No errors detected since last read",
    ),
    _gpu(
        "diagnosis-of-memory",
        rf"\| (?:GPU Memory|Memory|Memory Bandwidth|[Mm]emtest|Page Retirement|Page Retirement/Row Remap){_FAIL}",
        fault="gpu_ecc",
        source=_DIAG,
        sample="| Memory                    | Fail - GPU: 3                                  |",
        near="| Memory                    | Pass - All                                     |",
    ),
    _gpu(
        "diagnosis-of-links",
        rf"\| (?:NVLink|NVBandwidth|nvbandwidth|NCCL Tests){_FAIL}",
        fault="nvlink_error",
        layer="link",
        source=_DIAG,
        sample="| NVBandwidth               | Fail - GPU: 0                                  |",
        near="| NVBandwidth               | Skip - All                                     |",
    ),
    _gpu(
        "diagnosis-of-power",
        rf"\| (?:Targeted Power|Pulse Test|pulse_test|targeted_power){_FAIL}",
        fault="thermal_power",
        source=_DIAG,
        sample="| Targeted Power            | Fail - GPU: 0                                  |",
        near="| Targeted Power            | Pass - All                                     |",
    ),
    _gpu(
        "diagnosis-of-device",
        rf"\| (?:PCIe|Diagnostic|EUD Test|Targeted Stress|SM Stress|Inforom|Integration|GPU\d+|Context Create){_FAIL}"
        r"|\| *Overall Health[ \t]*\| *Failure\b",
        fault="gpu_xid_other",
        source=_DIAG + "; dcgmi health",
        sample="| Diagnostic                | Fail - GPU: 5                                  |",
        near="| Diagnostic                | Pass - All                                     |",
    ),
)
