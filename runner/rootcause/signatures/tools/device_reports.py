"""Rows of reports about devices beside those of nvidia-smi's table: its XML, its columns and counters; checks of nodes; xpu-smi.

None lasts, as in tables of tools.
"""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_XML = "nvidia-smi -q -x"
_XPU = "xpu-smi health and diag"
_NHC = "Azure's health checks of nodes, and LBNL Node Health Check, by the name of the check that failed"
_FAILED_CHECK = r"\b[Hh]ealth check failed: +check_(?:{0})"

_ecc = partial(Signature, fault="gpu_ecc", layer="device", scope="gpu")
_lost = partial(Signature, fault="gpu_lost", layer="device", scope="gpu")
_links = partial(Signature, fault="nvlink_error", layer="link", scope="gpu")
_heat = partial(Signature, fault="thermal_power", layer="device", scope="gpu")
_driver = partial(Signature, fault="gpu_xid_other", layer="device", scope="gpu")

DEVICE_REPORTS = (
    _ecc(
        "check-of-memory",
        _FAILED_CHECK.format(r"gpu_ecc|gpu_remap\w*|gpu_row\w*|nv\w*ecc\w*"),
        source=_NHC,
        sample="ERROR:  nhc:  Health check failed:  check_gpu_ecc: GPU id 4: ECC error count too high. FaultCode: NHC2019",
        near="nhc: Running check:  check_gpu_ecc 20000000 10000",
    ),
    _lost(
        "check-of-loss",
        _FAILED_CHECK.format(r"gpu_count|gpu_persist\w*|gpu_lost|gpu_missing"),
        source=_NHC,
        sample="ERROR:  nhc:  Health check failed:  check_gpu_count: Expected GPUs: 8, detected GPUs: 7. FaultCode: NHC2009",
        near="nhc: Running check:  check_gpu_count 8",
    ),
    _links(
        "check-of-links",
        _FAILED_CHECK.format(r"nvlink\w*|nv_?switch\w*|gpu_nvlink\w*"),
        # Beside the row of all checks of GPUs, which is of a deeper layer.
        layer="device",
        source=_NHC,
        sample="ERROR:  nhc:  Health check failed:  check_nvlink_status: GPU 3 has inactive NVLinks. FaultCode: NHC2016",
        near="nhc: Running check:  check_nvlink_status",
    ),
    _heat(
        "check-of-heat",
        _FAILED_CHECK.format(
            r"gpu_clock\w*|gpu_temp\w*|gpu_throttl\w*|gpu_power\w*|nv\w*throttl\w*"
        ),
        source=_NHC,
        sample="ERROR:  nhc:  Health check failed:  check_gpu_clock_throttling: HW Slowdown on GPU 3. FaultCode: NHC2006",
        near="nhc: Running check:  check_gpu_clock_throttling",
    ),
    _ecc(
        "xml-of-memory",
        r"<(?:pending_(?:blacklist|retirement)|remapped_row_(?:failure|pending)|sram_threshold_exceeded)>Yes<"
        r"|<double_bit_retirement>\s*<retired_count>[1-9]|<(?:dram|sram)_uncorrectable\w*>[1-9]",
        source=_XML,
        sample="      <pending_blacklist>Yes</pending_blacklist>",
        near="      <pending_blacklist>No</pending_blacklist>",
    ),
    _lost(
        "xml-of-loss",
        r"<(?:reset_required|drain_and_reset_recommended)>Yes<|<gpu_recovery_action>(?:Reset|Reboot|Drain and Reset)\b"
        r"|<(?:gpu_temp|fan_speed|gpu_util|power_draw|product_name)>(?:Unknown Error|GPU is lost|Requires reset|ERR!)<",
        source=_XML,
        sample="      <reset_required>Yes</reset_required>",
        near="      <reset_required>No</reset_required>",
    ),
    _heat(
        "xml-of-heat",
        r"<clocks_(?:event|throttle)_reason_(?:hw_slowdown|hw_thermal_slowdown|hw_power_brake_slowdown|sw_thermal_slowdown)>Active<",
        source=_XML,
        sample="      <clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown>",
        near="      <clocks_event_reason_hw_thermal_slowdown>Not Active</clocks_event_reason_hw_thermal_slowdown>",
    ),
    _links(
        "counters-of-links",
        r"\bLink \d+: (?:Link )?Recovery (?:Errors|Failed Events)?: ?[1-9]|\bLink \d+: (?:Replay|CRC(?: FLIT| Data)?) Errors: "
        r"[1-9]\d\d|\bLink \d+: (?:Effective|Symbol) Errors: [1-9]\d\d\d\d",
        source="nvidia-smi nvlink -e; the numbers of digits are chosen",
        sample="\t Link 4: Replay Errors: 21845",
        near="\t Link 4: Replay Errors: 3",
    ),
    Signature(
        "section-of-violations",
        r"#\s*gpu\b.{0,160}\b(?P<section>tviol)[ \t\r]*$",
        fault="",
        layer="other",
        scope="node",
        weight="supporting",
        role="section",
        source="nvidia-smi dmon -s v: the last column says whether a limit of temperature is violated now",
        sample="# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec  pviol  tviol",
        near="# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec  mclk  pclk",
    ),
    _heat(
        "row-of-violations",
        r"(?:^|[:\d]) {2,8}\d{1,2}(?: {1,8}(?:\d+|-)){5,14} {1,8}(?P<tviol>1)[ \t\r]*$",
        role="in-section",
        source="nvidia-smi dmon -s v",
        sample="    3    120     93    101     99     40      0      0      0      1",
        near="    3    120     93    101     99     40      0      0      0      0",
    ),
    Signature(
        "section-of-columns",
        r"\b(?P<query>index|timestamp|name|pci\.bus_id|gpu_bus_id|uuid),.{0,400}\bclocks_(?:event|throttle)_reasons\.\w",
        fault="",
        layer="other",
        scope="node",
        weight="supporting",
        role="section",
        source="nvidia-smi --query-gpu=... --format=csv: its first line names the columns",
        sample="timestamp, index, temperature.gpu, clocks_event_reasons.hw_thermal_slowdown, clocks_event_reasons.sw_power_cap",
        near="timestamp, index, temperature.gpu, power.draw [W]",
    ),
    _heat(
        "row-of-columns",
        r"\d, (?:[^,\n]{1,60}, ){0,16}(?P<columns>Active)(?:,|[ \t\r]*$)",
        role="in-section",
        source="nvidia-smi --query-gpu=... --format=csv: the column's name says which reason is active",
        sample="2024/05/02 03:01:22.102, 3, 92, Active, Not Active",
        near="2024/05/02 03:01:22.102, 3, 92, Not Active, Not Active",
    ),
    _links(
        "links-of-amd",
        r"\bXGMI_ERR(?:OR)?(?:_STATUS)?: (?:ERROR|MULTIPLE_ERRORS)\b|\bXGMI link between GPU ?\d+ and GPU ?\d+ is (?:DOWN|down)\b",
        source="amd-smi metric and xgmi",
        sample="        XGMI_ERR: MULTIPLE_ERRORS",
        near="        XGMI_ERR: NO_ERROR",
    ),
    _lost(
        "devices-of-amd-silent",
        r"\bRSMI_STATUS_BUSY: unresponsive device|\bGPU is not accessible: No such device\b"
        r"|\bAMDSMI_STATUS_(?:NO_DATA|BUSY|DRIVER_NOT_LOADED)\b.{0,60}\b(?:unresponsive|not responding)\b",
        source="rocm-smi and amd-smi",
        sample="ERROR: 5 GPU[5]: RSMI_STATUS_BUSY: unresponsive device; sysfs read timed out",
        near="GPU[5]: RSMI_STATUS_SUCCESS",
    ),
    _ecc(
        "xpu-memory",
        r"\bMemory(?: Health)? +\| Status: Critical\b",
        source=_XPU,
        sample="| 4. GPU Memory                | Status: Critical                                              |",
        near="| 4. GPU Memory                | Status: OK                                                    |",
    ),
    _heat(
        "xpu-heat",
        r"\b(?:Core Temperature|Memory Temperature|Power)(?: Health)? +\| Status: (?:Critical|Warning)\b",
        source=_XPU,
        sample="| 1. GPU Core Temperature      | Status: Critical                                              |",
        near="| 1. GPU Core Temperature      | Status: OK                                                    |",
    ),
    _links(
        "xpu-links",
        r"\bXe Link(?: Port)?(?: Health)? +\| Status: (?:Critical|Warning)\b",
        source=_XPU,
        sample="| 5. Xe Link Port              | Status: Critical                                              |",
        near="| 5. Xe Link Port              | Status: OK                                                    |",
    ),
    _driver(
        "xpu-check-failed",
        r"\| Result: Fail\b|\bDevice is wedged\b",
        source=_XPU,
        sample="| Hardware Sysman              | Result: Fail                                                  |",
        near="| Hardware Sysman              | Result: Pass                                                  |",
    ),
)
