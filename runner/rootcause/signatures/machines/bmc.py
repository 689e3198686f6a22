"""Messages of management controllers and firmware: Dell's identifiers, HPE's integrated management log, sensors of IPMI."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

# Words by which a message reports a fault, not a state that is over or normal.
_FAULTY = (
    r"\b(?:fatal|uncorrectable|uncorrected|multi-bit|un(?:recoverable|recovered)|failed|failure|fault(?:y)?|fails|malfunction\w*"
    r"|errors? (?:was |were |is |are |has been )?(?:detected|occurred|observed)|internal error|machine check"
    r"|(?:is|are|was|were) (?:absent|missing|removed|disabled|mapped out)|lost\b|degraded"
    r"|not (?:connected|optimal|detected|working|operational|responding|present|communicat\w*|able)"
    r"|improperly|out(?:side)? of (?:the )?(?:\w+ )?range|unable to|cannot|bad|IERR|CATERR|training failure"
    r"|rate exceeded|limit (?:is )?(?:reached|exceeded)|predictive failure|non-recoverable|critical threshold)"
)
_DELL = "Dell, event and error messages of iDRAC, the lifecycle log and UEFI: identifier, then text"

_part = partial(Signature, fault="host_hardware", layer="machine", scope="node", is_lasting=True)
_heat = partial(Signature, fault="thermal_power", layer="device", scope="node", is_lasting=True)

BMC = (
    _part(
        "dell-part",
        r"\b(?:CPU\d{4}|(?:MEM|PCI|HWC|PSU|PWR|PDR|VDR|CTL|BAT|VLT|AMP|NIC|BIOS|RFM|PST|PFM|ASR|CBL|ENC)\d{3,4})\b[: |\-\"',]"
        rf".*{_FAULTY}",
        source=_DELL,
        sample="MEM0001: Multi-bit memory errors detected on a memory device at location(s) DIMM_A1.",
        near="PSU0801: Power supply 1 is operating normally.",
    ),
    _part(
        "dell-firmware",
        rf"\bUEFI\d{{4}}\b[: |\-\"',].*{_FAULTY}",
        source=_DELL,
        sample="UEFI0067: A PCIe link training failure is observed in Slot 4 and the link is disabled.",
        near="UEFI0081: Memory configuration has changed from the last time the system was started.",
    ),
    _part(
        "link-trained-slowly",
        r"(?i)expected (?:pcie )?link (?:speed|width) is \S{1,8} but (?:the )?actual (?:link )?(?:speed|width)?"
        r"|pcie (?:degraded link|link (?:speed|width) (?:is )?degraded)|pcie link (?:speed|width) is not optimal",
        source="UEFI of servers; health checks of vendors: the link of a card is slower or narrower than it is made for",
        sample="Expected link width is x16 but actual link width is x8.",
        near="Expected link speed is Gen5.",
    ),
    _heat(
        "dell-heat",
        r"\b(?:TMP|FAN)\d{3,4}\b[: |\-\"',].*\b(?:(?:greater|higher|above|exceed\w*).{0,40}\b(?:critical|maximum|upper)"
        r"|less than the lower critical|fail\w*|(?:is|are) (?:lost|removed|absent|missing)|not (?:working|detected|present)"
        r"|outside of (?:the )?(?:required )?range|(?:allowable|normal) range is exceeded)"
        r"|\bCPU\d{4}\b.{0,120}\b(?:thermal trip|over-?temperature|throttled)",
        source=_DELL,
        sample="TMP0121: The system inlet temperature is greater than the upper critical threshold.",
        near="TMP0118: The system inlet temperature is less than the lower warning threshold.",
    ),
    _part(
        "hpe-part",
        r"\bUncorrectable (?:Memory|PCI Express|Machine Check|I/O) (?:Error|Exception)\b"
        r"|\bUnrecoverable (?:System|I/O|Memory) (?:Error|Failure)\b|\bPOST Error: \S|\bProcessor Uncorrect\w+ Error"
        r"|\bSystem Power Supplies? Not Redundant\b|\bPower Supply (?:Failure|Failed|Input Failure)\b"
        r"|\bDrive Array (?:Device|Controller) Failure\b|\bSystem Board (?:Fault|Failure)\b|\bServer Critical Fault \(",
        source="HPE, integrated management log of iLO",
        sample="Critical | Uncorrectable Memory Error (Processor 1, Memory Module 5)",
        near="Repaired | Corrected Memory Error threshold was reset",
    ),
    _heat(
        "hpe-heat",
        r"\bSystem (?:Overheating|Fan (?:Failure|Failed|Removed|Degraded))|\bSystem Fans Not Redundant\b"
        r"|\bOvertemperature (?:Condition|Shutdown)",
        source="HPE, integrated management log of iLO",
        sample="Critical | System Overheating (Zone 1, Location System Board, Temperature 51C)",
        near="Informational | System Fan was inserted (Fan 3)",
    ),
    _part(
        "server-processor-error",
        r"\bCPU\d* ?(?:CATERR|CAT_ERR|IERR)\b|\bCATERR (?:is )?asserted|\bMCERR asserted"
        r"|Assertion: (?:.{0,60})?(?:Uncorrectable (?:ECC|memory)|Bus Fatal Error|Bus Uncorrectable)"
        r"|\bBus (?:Fatal|Uncorrectable) Error\b.{0,40}\bAssert",
        source="Supermicro, Intel and OpenBMC: processors and buses in the system event log",
        sample="CPU1 CATERR | Assertion",
        near="CPU1 presence | Assertion",
    ),
    _part(
        "memory-or-bus-of-server",
        r"\b[Uu]ncorrectable (?:memory|bus|system memory) error (?:has (?:occurred|been detected)|was detected) on\b"
        r"|\b[Uu]ncorrectable error detected for DIMM|\bFault in slot .{1,24} on system\b"
        r"|\bmachine check error has occurred on [Pp]rocessor|\bDIMM\S* .{0,40}\bhas (?:an )?uncorrectable\b"
        r"|\bDIMM \S+ on server \S+ operability: inoperable"
        r"|\bThe resource property \S*(?:CPU|DIMM|MemoryCtrl|ProcessorModule)\S*.{0,60} has detected errors of type 'Uncorrect",
        source="Lenovo, XClarity controller; Supermicro; Cisco UCS Manager; Redfish, ResourceErrorsDetected",
        sample="An uncorrectable bus error has occurred on bus PCIe Slot 3",
        near="An uncorrectable bus error on bus PCIe Slot 3 was cleared",
    ),
    _part(
        "power-not-redundant",
        r"\| Power (?:Unit|Supply|Supplies)\b[^|\n]{0,24}"
        r"\| *(?:Redundancy Lost|Non-Redundant: Insufficient\S*)[^|\n]{0,24}\| Asserted",
        is_lasting=False,
        source="IPMI 2.0, the generic event of redundancy, as ipmitool prints it",
        sample="6 | 05/02/2024 | 03:11:00 | Power Unit #0x01 | Redundancy Lost | Asserted",
        near="6 | 05/02/2024 | 03:11:00 | Power Unit #0x01 | Fully Redundant | Asserted",
    ),
    _part(
        "sensor-of-power-critical",
        r"\b(?:PSU?\d*|P\d*V\w*|Volt\w*|Power Supply|VIN|12V|Input Power)\b"
        r"[^|\n]{0,30}\|[^|\n]{1,40}\| +(?:cr|nr|ucr|unr|lcr|lnr)\b",
        source="ipmitool, sdr and sensor: the column of the state",
        sample="PSU2 Input       | 0 Volts           | cr",
        near="PSU2 Input       | 232 Volts         | ok",
    ),
    _part(
        "state-of-chassis",
        r"\b(?:Main Power Fault|Power Overload|Drive Fault) +: true\b"
        r"|\|[^|\n]*\b(?:Failure detected|Predictive failure|Power Supply AC lost)"
        r"|\"Health\": \"Critical\"",
        is_lasting=False,
        source="ipmitool, chassis status and sdr elist; Redfish, Status.Health",
        sample="Main Power Fault     : true",
        near="Main Power Fault     : false",
    ),
    _part(
        "memory-power-at-fault",
        r"\bSensor: PMIC_ERR\b.{0,80}\bDIMM \w+ .{1,60}\bAssertion\b",
        source="OpenBMC of Meta, its log of events: the supply on a memory module",
        sample="Sensor: PMIC_ERR (0xB4), Event Data: (020500) DIMM A3 Vin Mgmt OV Assertion",
        near="Sensor: PMIC_ERR (0xB4), Event Data: (020500) DIMM A3 Vin Mgmt OV Deassertion",
    ),
)
