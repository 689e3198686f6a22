"""Hardware of hosts by its own reports: processors and memory, PCIe, disks, and devices that are gone."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_part = partial(Signature, fault="host_hardware", layer="machine", scope="node", is_lasting=True)
_gone = partial(Signature, fault="device_vanished", layer="machine", scope="node", is_lasting=True)

HARDWARE = (
    _part(
        "panic-for-hardware",
        r"Kernel panic - not syncing: (?:Fatal (?:local )?[Mm]achine [Cc]heck|Fatal hardware error"
        r"|Timeout: Not all CPUs entered broadcast exception handler|Machine check from unknown source"
        r"|Asynchronous SError|Uncorrected|Unrecoverable)"
        r"|\bSError Interrupt on CPU\d+, code 0x",
        source="Linux, arch/x86/kernel/cpu/mce, drivers/acpi/apei/ghes.c, arch/arm64/kernel/traps.c: hardware stopped the kernel",
        sample="Kernel panic - not syncing: Fatal local machine check",
        near="Kernel panic - not syncing: Fatal exception in interrupt",
    ),
    _part(
        "memory-uncorrected",
        r"\bEDAC MC\d+: (?:[1-9]\d* )?UE (?:row|page|on|[a-z]+ (?:\w+ )?error)\b"
        r"|\bEDAC .{1,40}\buncorrect(?:ed|able) (?:DRAM |memory |ECC )*error(?:,| on| at| in| detected|\s*$)"
        r"|\bMemory failure: 0x[0-9a-f]+: (?:unhandlable page|recovery action for .{1,60}: (?:Ignored|Failed))"
        r"|\bUncorrected hardware memory error in user-access\b"
        r"|\bcxl_aer_uncorrectable_error: |\bmemdev=\S+ .{0,120}(?:\blog=Fatal\b|'UNCORRECTABLE)",
        source="Linux, drivers/edac, mm/memory-failure.c, drivers/cxl: an error of memory that ECC could not correct",
        sample='EDAC MC3: 1 UE row 0, channel-a= 0 channel-b= 1 labels "-": : amd64_edac',
        near='EDAC MC3: 1 CE row 0, channel-a= 0 channel-b= 1 labels "-": : amd64_edac',
    ),
    _part(
        "memory-corrected-in-floods",
        r"\bEDAC MC\d+: [1-9]\d{3,} CE ",
        source="Linux, drivers/edac: as many in one second as a module that is about to fail has",
        sample="EDAC MC0: 32767 CE memory scrubbing error on CPU_SrcID#0_MC#0_Chan#0_DIMM#1 (channel:0 slot:1)",
        near="EDAC MC0: 3 CE memory scrubbing error on CPU_SrcID#0_MC#0_Chan#0_DIMM#1 (channel:0 slot:1)",
    ),
    _part(
        "pcie-transaction-lost",
        r"\[ ?(?:4\] DLP|5\] SDES|13\] FCP|14\] CmpltTO|17\] RxOF|18\] MalfTLP) *(?:\(First\))?\s*$"
        r"|\bAER: subordinate device reset failed|\bEEH: .{0,80}\b(?:permanently disabled|failure detected)",
        is_lasting=False,
        source="Linux, drivers/pci/pcie/aer.c: the bits of an error that is not corrected; arch/powerpc/kernel/eeh.c",
        sample="nvme 0000:c5:00.0:    [14] CmpltTO                (First)",
        near="nvme 0000:c5:00.0:    [ 0] RxErr                  (First)",
    ),
    _part(
        "disk-reports-its-end",
        r"\b(?:Pre-fail|Old_age) +(?:Always|Offline) +FAILING_NOW\b|\bFailed SMART usage Attribute: \d"
        r"|\bSMART Failure: \S|\bhaving the (?:read|electrical|servo)\S* element of the test failed"
        r"|\bNVM subsystem reliability has been degraded|\bmedia has been placed in read[- ]only mode"
        r"|\bavailable spare has fallen below threshold|\bvolatile memory backup device has failed"
        r"|\bCritical Warning: +0x(?:[1-9a-f][0-9a-f]|0[13-9a-f])\b",
        is_lasting=False,
        source="smartmontools, smartctl and smartd: attributes below their limits, tests that failed, NVMe's critical warning",
        sample="smartd[1]: Device: /dev/sdc [SAT], Failed SMART usage Attribute: 5 Reallocated_Sector_Ct.",
        near="smartd[1]: Device: /dev/sdc [SAT], SMART Usage Attribute: 194 Temperature_Celsius changed from 64 to 63",
    ),
    _part(
        "array-lost-a-disk",
        r"\b(?:Fail|FailSpare|DegradedArray) event (?:had been |has been |was )?detected on md device"
        r"|\bVD \S+ is now (?:PARTIALLY )?(?:DEGRADED|OFFLINE)\b|\bPredictive failure: PD \S",
        is_lasting=False,
        source="mdadm, its monitor; MegaRAID, its event log",
        sample="mdadm[822]: Fail event detected on md device /dev/md0, component device /dev/nvme2n1",
        near="mdadm[822]: RebuildFinished event detected on md device /dev/md0",
    ),
    _part(
        "card-in-recovery",
        r"\b(?:i40e|ice|ixgbe\w*|igb|igc) \S+ .{0,40}(?:\bFirmware recovery mode detected|\bReceived (?:unrecoverable )?ECC Err"
        r"|\bWarning firmware error detected FWSM)"
        r"|\b(?:i40e|ice|ixgbe\w*) \S+ Firmware recovery mode detected",
        source="Linux, drivers/net/ethernet/intel: firmware of the card is damaged, or its memory is",
        sample="ixgbe 0000:3b:00.0 eth2: Received ECC Err, initiating reset",
        near="ixgbe 0000:3b:00.0 eth2: initiating reset due to tx timeout",
    ),
    _gone(
        "disk-gone",
        r"\bnvme\d+n\d+: detected capacity change from [1-9]\d* to 0\b|\bRemoving after reset failure status: -19\b"
        r"|\bDevice offlined - not ready after error recovery|\bata\d+\.\d\d: (?:disabled|disable device)\s*$"
        r"|\bhostbyte=DID_NO_CONNECT\b.{0,40}\bcmd_age="
        r"|\b(?:Start/Stop Unit|Stopping disk) failed: Result: hostbyte=DID_NO_CONNECT",
        source="Linux, drivers/nvme, scsi, ata: nothing answers at the address of a disk that was there",
        sample="sd 1:0:0:0: Device offlined - not ready after error recovery",
        near="sd 1:0:0:0: Device not ready, waits for its medium",
    ),
    _gone(
        "card-gone",
        r"\bpciehp\b.{0,60}\bSlot\(\S{1,8}\): Surprise Removal|\bmlx5_pci_err_detected\b.{0,160}\bpci channel state = 3\b"
        r"|\b(?:i40e|ice|iavf|igb|igc|ixgbe\w*|e1000e|ena|bnxt_en|mlx[45]_core) \S+ .{0,60}\b(?:removed unexpectedly"
        r"|device (?:is )?now detached|surprise removal)",
        source="Linux, drivers/pci/hotplug/pciehp, drivers/net/ethernet: a card left its slot without a request",
        sample="pciehp 0000:16:01.0:pcie204: Slot(3): Surprise Removal",
        near="pciehp 0000:16:01.0:pcie204: Slot(3): AttnBtn+ PwrCtrl+ Surprise+",
    ),
)
