"""Lines of what watches devices: DCGM's policies and health, exporters of metrics, alerts, conditions of nodes, health agents.

They repeat what a device reported before, so none lasts: a node that makes steps after such a line is healthy.
"""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_DCGM = "DCGM: dcgmi policy and dcgmi health"
_EXPORTERS = "DCGM exporter, AMD device metrics exporter, npu-exporter, neuron-monitor; Prometheus' text format"
_ALERTS = "Alertmanager and Prometheus: an alert that fires, by words of its name"
_CONDITIONS = (
    "node-problem-detector, EKS node monitoring agent, gpud: conditions of nodes and their reasons"
)
# Labels of a sample in Prometheus' text format, in front of its value.
_LABELS = r"(?:\{[^}\n]{0,600}\})? "
_MEMORY = "[Ee]cc|ECC|DoubleBit|DBE|Dbe|[Rr]emap|RetiredPage|PageRetire|SRAMUncorr|[Uu]ncorrectable"
_LOSS = "FellOff|FallenOff|Fallen_?Off|[Gg]puLost|GPULost|GPU_?LOST|[Gg]puMissing|GPUMissing|GPUDown|GpuDown|[Gg]pu_?[Ll]ost"
_LINKS = (
    "[Nn]v[Ll]ink|NVLINK|NVLink|NVSwitch|NvSwitch|[Ff]abricManager|FABRIC_MANAGER|SXid|XGMI|Xgmi"
)
_HEAT = "(?:GPU|[Gg]pu|DCGM|Nvidia|NVIDIA)\\w{0,20}(?:Temp|Therm|Throttl|[Oo]verheat|Hot\\b|PowerBrake|Slowdown)"


def _fires(words: str) -> str:
    """Return a pattern of alerts that fire and have one of these words in their names."""
    return (
        rf"\[FIRING(?::\d{{1,4}})?\] ?\S{{0,40}}(?:{words})"
        rf'|"status": ?"firing".{{0,200}}"alertname": ?"\w{{0,40}}(?:{words})'
        rf'|\balertname="?\w{{0,40}}(?:{words})\w{{0,40}}"?,.{{0,160}}\bfiring\b'
    )


def _is_true(words: str) -> str:
    """Return a pattern of conditions of a node with these names that hold, as kubectl describes them and as JSON."""
    return (
        rf"(?:^|\s)(?:{words}) +True +[A-Z]"
        rf'|"type": ?"(?:{words})", ?"status": ?"True"|"status": ?"True", ?"type": ?"(?:{words})"'
    )


def _unhealthy(words: str) -> str:
    """Return a pattern of reports of gpud in which such a component is not healthy."""
    health = r'"(?:health|health_state)": ?"(?:Unhealthy|Degraded)"'
    return rf'"component": ?"accelerator-\w+-(?:{words})[\w-]{{0,30}}",.{{0,160}}{health}'


_ecc = partial(Signature, fault="gpu_ecc", layer="device", scope="gpu")
_lost = partial(Signature, fault="gpu_lost", layer="device", scope="gpu")
_links = partial(Signature, fault="nvlink_error", layer="link", scope="gpu")
_heat = partial(Signature, fault="thermal_power", layer="device", scope="gpu")
_driver = partial(Signature, fault="gpu_xid_other", layer="device", scope="gpu")

MONITORS = (
    _ecc(
        "policy-violated-by-memory",
        r"(?i)\b(?:double[- ]bit ECC error|maximum (?:number of )?retired pages?(?: limit)?) has violated policy manager",
        source=_DCGM,
        sample="A Double Bit ECC Error has violated policy manager conditions.",
        near="An XID error has violated policy manager conditions.",
    ),
    _heat(
        "policy-violated-by-heat",
        r"(?i)\bmaximum (?:thermal|temperature|power) (?:limit|threshold) has violated policy manager",
        source=_DCGM,
        sample="The maximum thermal limit has violated policy manager conditions.",
        near="The maximum thermal limit is set in policy manager conditions.",
    ),
    _links(
        "policy-violated-by-links",
        r"(?i)\bnvlink error has violated policy manager|\bDetected [1-9]\d* (?:\w+ )?nvlink errors? on nvlink lane"
        r"|-> NVLINK system +\| (?:Warning|Failure)\b|-> NVSwitch (?:fatal|non-fatal)? ?\w* *\| Failure\b",
        source=_DCGM,
        sample="|                           | Detected 4 NvLink errors on NvLink lane 3 attached to    |",
        near="|                           | Detected 0 NvLink errors on NvLink lane 3 attached to    |",
    ),
    _driver(
        "policy-violated-by-xid",
        r"(?i)\b(?:xid|pcie? (?:replay|error))(?: \w+){0,2} has violated policy manager",
        source=_DCGM,
        sample="An XID error has violated policy manager conditions.",
        near="An XID error is among the policy manager conditions.",
    ),
    _ecc(
        "health-of-memory",
        r"-> Memory system +\| Failure\b|-> InfoROM system +\| Failure\b",
        source=_DCGM,
        sample="|       -> Memory system    | Failure                                                  |",
        near="|       -> Memory system    | Healthy                                                  |",
    ),
    _heat(
        "health-of-heat",
        r"-> (?:Thermal|Power) system +\| (?:Warning|Failure)\b",
        source=_DCGM,
        sample="|       -> Thermal system   | Warning                                                  |",
        near="|       -> Thermal system   | Healthy                                                  |",
    ),
    _ecc(
        "metric-of-memory",
        rf"\bDCGM_FI_DEV_(?:ECC_DBE_VOL_\w+|ROW_REMAP_(?:FAILURE|PENDING)|RETIRED_PENDING){_LABELS}[1-9]"
        rf"|\bDCGM_FI_DEV_XID_ERRORS{_LABELS}(?:48|64|9[45]|140|171|172)\b"
        rf"|\bnvidia_smi_(?:ecc_errors_uncorrected_volatile_\w+|remapped_rows_(?:failure|pending)){_LABELS}[1-9]"
        rf"|\b(?:amd_)?gpu_ecc_uncorrect(?:ed|able)?(?:_\w+)?{_LABELS}[1-9]"
        rf"|\bnpu_chip_info_\w*(?:double|multi)_?bit_e\w+{_LABELS}[1-9]"
        rf"|\bhardware_ecc_events_total\{{[^}}\n]*uncorrected[^}}\n]*\}} [1-9]"
        r'|"(?:mem|sram|hbm)_ecc_uncorrected": ?[1-9]',
        source=_EXPORTERS,
        sample='DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu="3",UUID="GPU-a81c",device="nvidia3"} 14',
        near='DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu="3",UUID="GPU-a81c",device="nvidia3"} 0',
    ),
    _lost(
        "metric-of-loss",
        rf"\bDCGM_FI_DEV_XID_ERRORS{_LABELS}(?:79|167)\b",
        source=_EXPORTERS,
        sample='DCGM_FI_DEV_XID_ERRORS{gpu="5",UUID="GPU-11",device="nvidia5"} 79',
        near='DCGM_FI_DEV_XID_ERRORS{gpu="5",UUID="GPU-11",device="nvidia5"} 0',
    ),
    _links(
        "metric-of-links",
        rf"\bDCGM_FI_DEV_XID_ERRORS{_LABELS}(?:74|14[4-9]|150)\b|\bDCGM_FI_DEV_FABRIC_MANAGER_STATUS{_LABELS}4\b"
        rf"|\bDCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_\w+{_LABELS}[1-9]"
        rf"|\bDCGM_FI_DEV_NVLINK_(?:CRC_\w+|REPLAY)_ERROR_COUNT_\w+{_LABELS}[1-9]\d\d\d"
        rf"|\bDCGM_FI_DEV_NVSWITCH_FATAL_ERRORS{_LABELS}[1-9]",
        source=_EXPORTERS + "; the number of digits is chosen",
        sample='DCGM_FI_DEV_XID_ERRORS{gpu="5",UUID="GPU-11",device="nvidia5"} 74',
        near='DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL{gpu="5"} 12',
    ),
    _heat(
        "metric-of-heat",
        # Bits of NVML: the hardware slows down, for heat, for power; the driver does, for heat.
        rf"\bDCGM_FI_DEV_CLOCK(?:S_EVENT|_THROTTLE)_REASONS{_LABELS}(?:8|32|40|64|72|96|104|128|136|200)\b",
        source=_EXPORTERS,
        sample='DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu="5",UUID="GPU-11",device="nvidia5"} 72',
        near='DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu="5",UUID="GPU-11",device="nvidia5"} 4',
    ),
    _driver(
        "metric-of-drivers",
        rf"\bDCGM_FI_DEV_XID_ERRORS{_LABELS}(?:46|56|57|58|6[0-2]|65|68|69|73|8[0-9]|96|97|109|11[0-9]|12[0-9]|13[0-6]|143"
        r"|15[6-9])\b"
        rf"|\bnpu_chip_info_health_status{_LABELS}0\b"
        r'|"error_summary": ?\{[^}]{0,200}"hardware": ?[1-9]',
        source=_EXPORTERS,
        sample='DCGM_FI_DEV_XID_ERRORS{gpu="5",UUID="GPU-11",device="nvidia5"} 119',
        near='npu_chip_info_health_status{id="0",vdie_id="1"} 1',
    ),
    _ecc(
        "monitor-of-memory",
        _fires(_MEMORY)
        + "|"
        + _is_true(r"(?:Gpu|GPU|Nvidia)\w*(?:Ecc|ECC|Remap|DoubleBit|Uncorrectable)\w*")
        + "|"
        + _unhealthy("ecc|remapped-rows")
        + r"|\bNvidiaDoubleBitError\b|\bNeuron(?:HBM|SRAM|NC)UncorrectableError\b",
        source=f"{_ALERTS}; {_CONDITIONS}",
        sample='{"status":"firing","labels":{"alertname":"GpuDoubleBitErrors","gpu":"6"}}',
        near='{"status":"firing","labels":{"alertname":"GpuIsIdle","gpu":"6"}}',
    ),
    _lost(
        "monitor-of-loss",
        _fires(_LOSS)
        + "|"
        + _is_true(r"(?:GPU|Gpu)(?:Missing|Lost|CountMismatch|FellOffBus)\w*")
        + "|"
        + _unhealthy("gpu-counts|gpu-lost")
        + r"|\bNvidiaDeviceCountMismatch\b|\bfiring\b.{0,300}\bxid=?\"?[:=]? ?\"?79\b"
        # Of eight, of four and of sixteen, fewer are there.
        r"|\b[Ee]xpected:? (?:GPUs?:? )?8(?: GPUs?)?,? (?:but )?(?:found|got|detected|detected GPUs|saw|actual|have):? [0-7]\b"
        r"|\b[Ee]xpected:? (?:GPUs?:? )?4(?: GPUs?)?,? (?:but )?(?:found|got|detected|detected GPUs|saw|actual|have):? [0-3]\b"
        r"|\b[Ee]xpected:? (?:GPUs?:? )?16(?: GPUs?)?,? (?:but )?(?:found|got|detected|saw|actual|have):? (?:\d|1[0-5])\b"
        r"|\b[Oo]nly [0-7] (?:of|out of|/) ?8 GPUs (?:are |were )?(?:visible|detected|found|present|available)\b"
        r"|\b(?:shows|sees|lists|reports|found|detected) (?:only )?[0-7] (?:of|out of|/) ?8 GPUs\b",
        source=f"{_ALERTS}; {_CONDITIONS}; checks of the number of GPUs",
        sample="  GPUMissing           True    Tue, 04 Mar 2025 09:12:01 +0000   GPUMissing   expected 8 GPUs, found 7",
        near="  GPUMissing           False   Tue, 04 Mar 2025 09:12:01 +0000   NoGPUMissing   expected 8 GPUs, found 8",
    ),
    _links(
        "monitor-of-links",
        _fires(_LINKS)
        + "|"
        + _is_true(
            r"(?:Nv[Ll]ink|NVLink|NVLINK|NVSwitch)(?:\w*(?:Inactive|Down|Error|Fail|Unhealthy)\w*)?"
        )
        + "|"
        + _unhealthy("nvlink|fabric-manager|nvswitch|sxid|error-sxid")
        + r"|\bNvidiaNVLinkError\b",
        source=f"{_ALERTS}; {_CONDITIONS}",
        sample="[FIRING:1] NvlinkErrors (critical) node=n7 gpu=2",
        near="[RESOLVED] NvlinkErrors node=n7 gpu=2",
    ),
    _heat(
        "monitor-of-heat",
        _fires(_HEAT)
        + "|"
        + _unhealthy("temperature|hw-slowdown|power-supply")
        + r"|\bNvidia(?:Thermal|Power)Error\b|\bGPU temperature (?:is )?above (?:the )?(?:slowdown|shutdown|critical) threshold",
        source=f"{_ALERTS}; {_CONDITIONS}",
        sample='ALERTS{alertname="GpuTemperatureHigh", alertstate="firing", gpu="3"} 1',
        near='ALERTS{alertname="GpuTemperatureHigh", alertstate="pending", gpu="3"} 1',
    ),
    _driver(
        "monitor-of-drivers",
        _fires("[Xx]id|XID|[Gg]puUnhealthy|GPUUnhealthy|[Gg]puError|GPUError")
        + "|"
        + _is_true(r"(?:GPU|Gpu)(?:XIDErrors|Xid\w*|XID\w*|Unhealthy)")
        + "|"
        + _unhealthy("error-xid|xid|nccl-hw|gsp-firmware|processes|persistence-mode")
        + r"|\bNvidiaXID\d+Error\b|\bNvidiaPCIeError\b|\bNeuronDMAError\b|\bDCGMDiagnosticFailure\b"
        r"|\b(?:critical|fatal) (?:error )?(?:xid|XID|Xid)[ =:](?:46|5[678]|6[0-2589]|8[0-9]|9[67]|109|1[12][0-9]|13[0-6])\b",
        source=f"{_ALERTS}; {_CONDITIONS}",
        sample="Warning  AcceleratedHardwareNotReady  2m  eks-node-monitoring-agent  NvidiaXID120Error: Xid 120 reported",
        near="Normal  AcceleratedHardwareReady  2m  eks-node-monitoring-agent  NvidiaXID: no Xid reported",
    ),
    Signature(
        "pcie-of-gpu-degraded",
        r"\bGPU ?[\w:.]{1,16}:? PCI-?[eE]? ?(?:[Ll]ink )?(?:[Ww]idth |[Ss]peed |[Gg]en(?:eration)? )?(?:is )?"
        r"(?:degraded|downgraded)\b",
        fault="host_hardware",
        layer="machine",
        scope="node",
        source="health checks of nodes: the link between host and GPU has fewer lanes, or a lower speed, than it is made for",
        sample="ERROR - GPU 5 PCIe link degraded: current width x8, expected x16",
        near="INFO - GPU 5 PCIe link: current width x16, expected x16",
    ),
)
