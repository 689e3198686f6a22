"""Sentences about a device in plain words, of any monitor, check or program; as a rule they have the device's number.

What only speaks of a device is left out before (`rootcause/context/quotations.py`).
"""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_WORDS = "the plain meaning of the words, as monitors and checks of nodes use them"
_NVRM = "NVIDIA kernel module, nv.c, nv-pci.c and knvlink*.c"
# A device with its number, as sentences name it.
_DEVICE = (
    r"\b(?:GPU|gpu|NPU|npu|TPU chip|TPU|HPU|MLU|DCU|GCU|IPU|XPU|accelerator|[Dd]evice|card|chip|die)"
    r"[ #:=_-]{0,2}[\da-f][\w:.]{0,15}\b"
)
# Why a node was taken out of its cluster, as Slurm writes it and as operators do.
_REASON = r"\b(?:reason set to: |Reason=)[^\[\n]{0,60}\b"


_ecc = partial(Signature, fault="gpu_ecc", layer="device", scope="gpu")
_lost = partial(Signature, fault="gpu_lost", layer="device", scope="gpu")
_links = partial(Signature, fault="nvlink_error", layer="link", scope="gpu")
_heat = partial(Signature, fault="thermal_power", layer="device", scope="gpu")
_driver = partial(Signature, fault="gpu_xid_other", layer="device", scope="gpu")
_DRAINED = (
    "Slurm: the reason of a node that was drained, in the words of operators and health checks"
)

PLAIN_WORDS = (
    Signature(
        "no-errors-of-memory",
        r"\b(?:[Nn]o|[Nn]o new|[Zz]ero|0) (?:DBEs?|[Dd]ouble[- ][Bb]it|[Uu]ncorrectable)\b",
        fault="",
        layer="device",
        scope="gpu",
        weight="benign",
        source=_WORDS,
        sample="no double bit errors found on GPU 3",
        near="double bit errors found on GPU 3",
    ),
    _ecc(
        "drained-for-memory",
        _REASON
        + r"(?i:(?:uncorrectable ecc|ecc errors?|ecc uncorrect\w*|dbe|row.?remap\w*|double.bit|xid.?(?:48|64|9[45]))\b)",
        source=_DRAINED,
        sample="update_node: node gpu-17 reason set to: GPU 3 uncorrectable ECC",
        near='node gpu-17 resumed: previous reason "GPU 3 uncorrectable ECC" cleared by admin',
    ),
    _lost(
        "drained-for-loss",
        _REASON
        + r"(?i:(?:fell off|fallen off|gpu (?:is |was )?(?:lost|missing|gone)|(?:lost|missing) gpus?|xid.?79)\b)",
        source=_DRAINED,
        sample="slurmctld: update_node: node gpu-17 reason set to: xid 79 gpu fell off bus",
        near="slurmctld: update_node: node gpu-17 reason set to: maintenance",
    ),
    _links(
        "drained-for-links",
        _REASON + r"(?i:(?:nvlinks?|nvswitch|sxid|xid.?74)\b)",
        source=_DRAINED,
        sample="NodeName=gpu-17 State=IDLE+DRAIN Reason=nvlink down on gpu 2 [root@2025-02-11T11:11:11]",
        near="NodeName=gpu-17 State=IDLE+DRAIN Reason=kernel update [root@2025-02-11T11:11:11]",
    ),
    _heat(
        "drained-for-heat",
        _REASON + r"(?i:(?:gpus? )?(?:overheat\w*|too hot|over.?temp\w*|thermal \w+|throttl\w+))",
        source=_DRAINED,
        sample="update_node: node gpu-17 reason set to: gpu thermal throttling",
        near="update_node: node gpu-17 reason set to: gpu driver update",
    ),
    _lost(
        "device-left-the-bus",
        _DEVICE
        + r".{0,30}\b(?:has |was |is )?(?:fallen|fell|dropped|disappeared|vanished|removed|missing) (?:off|from) (?:the )?"
        r"(?:PCI(?:e|-E)? )?(?:bus|lspci)\b"
        r"|\b(?:GPU|NPU) count mismatch\b.{0,60}\bexpected\b|\bGPU count:? (?:[0-7]/8|[0-3]/4|(?:\d|1[0-5])/16)\b"
        r"|\bGPU_SXM_\d+\b.{0,100}\boff the bus\b|\bcard drop(?:ped)?\b|\bERROR_(?:GPU_IS_LOST|RESET_REQUIRED)\b"
        r"|\bhabanalabs\b.{0,80}\b(?:device (?:is )?(?:lost|unusable)|[Dd]evice is NOT usable)\b"
        r"|\bnvidia-smi(?: -\S+)*(?: command)? (?:did not return|timed out after|hung|is hung|has hung|does not respond"
        r"|is not responding)\b"
        r"|\bTimeout waiting for device at BDF \S+ to reappear\b|\b(?:UR|ZE|PI|VK|CL|SYCL)\w* [Ee]rror:? \S{0,24}DEVICE_LOST\b",
        source=_WORDS + "; tt-umd, warm_reset.cpp",
        sample="RuntimeError: local rank 7 has no device: GPU 5 dropped off the PCIe bus",
        near="RuntimeError: local rank 7 has no device: GPU 5 is on the PCIe bus",
    ),
    _lost(
        "driver-has-no-device",
        r"NVRM: (?:No NVIDIA (?:GPU|devices?|graphics adapter) (?:was )?found|None of the NVIDIA (?:devices|graphics"
        r" adapters?) were (?:successfully )?initialized|GPU \S{1,24}: Failed to (?:copy vbios|allocate|map|initialize|request)"
        r"|.{0,80}\bopen failed: -\d|The NVIDIA probe routine failed for)",
        source=_NVRM,
        sample="NVRM: None of the NVIDIA devices were initialized.",
        near="NVRM: The NVIDIA devices were initialized.",
    ),
    _ecc(
        "memory-of-device-in-words",
        r"\b(?:DBE|[Dd]ouble[- ][Bb]it (?:ECC )?[Ee]rrors?|[Uu]ncorrectable (?:ECC |memory |HBM ){0,2}[Ee]rrors?)"
        r"(?: was| were| has been)?(?: detected| occurred| reported| logged| found)?"
        r" (?:at|on|in) (?:address|bank|GPU|gpu|NPU|npu|device|nvidia\d|HBM)"
        r"|\buncorrectable (?:ECC |memory ){0,2}errors?(?: was| were| has been)? (?:detected|occurred|reported)(?: at|,)"
        r"|\b(?:uncorrectable|double[- ]bit|multi[- ]bit) (?:memory|HBM|DRAM|SRAM) errors? (?:during|on|in) "
        r"(?:memtest|GPU|device)\b"
        r"|\bamdgpu\b.{0,60}\bUMC uncorrectable error\b"
        r"|\b[Rr]ow[- ]remap\w* (?:is )?pending(?:[,.;]| -|[ \t\r]*$)"
        r"|\bVolatile Uncorr\. ECC(?: count| errors?)?(?: is|:| =) ?[1-9]",
        source=_WORDS,
        sample="EVENT: Double Bit Error on device nvidia3",
        near="EVENT: Double Bit Errors are counted on device nvidia3",
    ),
    _links(
        "links-of-device-in-words",
        r"NVRM: .{0,60}\b(?:knvlink|nvlink|NVLink)\w*.{0,100}\b(?:in error state|training (?:has )?failed"
        r"|recovery failed|is down\b)"
        r"|\bnvlsm\b.{0,60}\blink (?:is )?down\b|\bNvLink link \d+ is currently down\b"
        r"|\b[Ll]ink \d+ training failed on GPU\b"
        r"|\b(?:NVLink|XGMI|HCCS|MTLink|MLU-?Link|Xe ?Link|ICI) (?:link |port )?\d+ (?:is |went |has gone )?"
        r"(?:down|inactive|lost)\b",
        source=_NVRM + "; " + _WORDS,
        sample="NVRM: GPU0 nvlink 5 is in error state",
        near="NVRM: GPU0 nvlink 5 is in active state",
    ),
    _heat(
        "heat-in-words",
        r"\b(?:[Tt]emperature|[Tt]emp|TEMP)(?: is| of|:)? \d{2,3}(?:\.\d)?\W{0,4}C? ?(?:exceeds|exceeded|is (?:over|above)|over"
        r"|above|>) (?:the |its )?(?:\w+ )?(?:limit|threshold|maximum)\b"
        r"|"
        + _DEVICE
        + r":? (?:is |was |has been )?(?:thermally throttled|throttled: thermal|thermal throttling (?:detected|active|engaged)"
        r"|throttl(?:ed|ing) (?:due to|because of|by) (?:heat|temperature|thermal|overheating|power))"
        r"|\b(?:npu|NPU|gpu|GPU|card|chip|die)\b.{0,40}\bover[- ]?temperature(?:,|[ \t\r]*$"
        r"| (?:detected|fault|alarm|event|shutdown))"
        r"|(?i:\bsw[ _]thermal[ _]slowdown (?:is )?active\b)"
        r"|(?i:\bthrottl(?:ed|ing)\b.{0,80}\bhw_?(?:thermal|power_?brake)_?slowdown(?:[)\]'\" ,;]|$))",
        source=_WORDS + "; NVML, reasons of clocks",
        sample="WARNING: GPU 3 temperature 94C exceeds the limit of 90C, clocks reduced",
        near="INFO: GPU 3 temperature 71C is below the limit of 90C",
    ),
    _ecc(
        "unhealthy-by-memory",
        r'"[Hh]ealth(?:y|_state|Status)?": ?"?(?:[Uu]nhealthy|UNHEALTHY)"?.{0,200}[\W_](?:ECC|UNCORRECT|[Uu]ncorrect|DBE)',
        source="exporters of metrics and monitors, as JSON",
        sample='{"GPU":"3","Health":"unhealthy","Reason":"GPU_ECC_UNCORRECT_UMC count 2 exceeds threshold 0"}',
        near='{"GPU":"3","Health":"healthy","Reason":"GPU_ECC_UNCORRECT_UMC count 0"}',
    ),
    _ecc(
        "json-of-memory-test",
        r'"(?:test_)?name": ?"(?:Memory|Memtest|memtest|GPU Memory)".{0,200}"(?:status|result)": ?"(?:Fail|FAIL|fail)"',
        source="dcgmi diag --json",
        sample='{"name":"Memory","results":[{"gpu_id":"5","status":"Fail"}]}',
        near='{"name":"Memory","results":[{"gpu_id":"5","status":"Pass"}]}',
    ),
    _driver(
        "json-of-device-test",
        r'"(?:test_)?name": ?"(?:Diagnostic|PCIe|SM Stress|Targeted Stress|Pulse Test|EUD)".{0,200}"(?:status|result)": ?"'
        r'(?:Fail|FAIL|fail)"',
        source="dcgmi diag --json",
        sample='{"name":"Diagnostic","results":[{"gpu_id":"5","status":"Fail"}]}',
        near='{"name":"Diagnostic","results":[{"gpu_id":"5","status":"Pass"}]}',
    ),
    *(
        Signature(
            f"xid-as-json-{name}",
            rf'"(?:xid|XID|Xid|xidCode|xid_code|xid_error|last_xid)": ?"?(?:{numbers})\b',
            fault=fault,
            layer="link" if fault == "nvlink_error" else "device",
            scope="gpu",
            source="monitors that write JSON; Xids that hardware and its firmware cause",
            sample=f'{{"msg":"inserted xid event","deviceUUID":"PCI:0000:0f:00","xid":{number},"eventType":"Fatal"}}',
            near='{"msg":"no xid event","deviceUUID":"PCI:0000:0f:00","xid":0}',
        )
        for name, fault, number, numbers in (
            ("ecc", "gpu_ecc", 95, "48|64|9[45]|140|17[12]"),
            ("lost", "gpu_lost", 79, "79|167"),
            ("links", "nvlink_error", 74, "74|14[4-9]|150"),
            (
                "other",
                "gpu_xid_other",
                119,
                "46|5[678]|6[0-2589]|8[0-9]|9[67]|109|1[12][0-9]|13[0-6]|143|15[689]",
            ),
        )
    ),
    _driver(
        "device-hangs-in-words",
        _DEVICE + r".{0,30}\b(?:hang|lockup) (?:was |is |has been )?detected\b"
        r"|\bTPU \S{1,60} is not HEALTHY\b|\b\w+ErrorDeviceHang\b",
        source=_WORDS + "; TPU clients; runtimes of other vendors",
        sample="[TOPSRT][E] topsStreamSynchronize failed: device 3 hang detected, please reset GCU",
        near="[TOPSRT][I] topsStreamSynchronize: device 3 hang detection is on",
    ),
)
