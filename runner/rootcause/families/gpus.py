"""GPUs: their memory, links, heat, drivers and programs."""

from runner.rootcause.families.family import TROUBLE, gpu

GPUS = (
    gpu(
        "gpu-memory-errors",
        r"(?:\b(?:ECC|DBE|SBE|SRAM|HBM|row[ -]?remap\w*|page retire\w*|poison\w*|RAS)\b.{0,80}\b(?:gpu|amdgpu|nvrm|dram"
        r"|uncorrect\w*|errors?)"
        r"|\b(?:gpu|amdgpu|nvrm)\b.{0,80}\b(?:ECC|DBE|SRAM|HBM|row[ -]?remap\w*|page retire\w*|poison\w*"
        r"|RAS)\b)(?!.{0,40}\bEDAC\b)",
        "gpu_ecc",
        sample="GPU 3: uncorrectable ECC errors were found in its DRAM",
        near="EDAC MC0: 1 CE memory read error",
        confidence=0.7,
    ),
    gpu(
        "gpu-gone",
        r"fallen off the bus|\b(?:gpu|device)s?\b.{0,30}\b(?:is lost|was lost|has been lost|not found on the bus|lost from)\b"
        r"|unable to determine the device handle",
        "gpu_lost",
        sample="GPU 0000:4e:00.0 is lost; reboot the system to recover it",
        near="the GPU's clock lost 3 seconds",
        confidence=0.8,
    ),
    gpu(
        "gpu-links",
        r"\b(?:nv ?link|nv ?switch\d*|nvlsm|xgmi|sxid|infinity fabric|fabric ?manager|GPU fabric|nvlink-c2c|mnnvl"
        r"|imex|hccs|mtlink|mlu-?link|xe ?link|ici link)\b" + TROUBLE,
        "nvlink_error",
        sample="nvidia-nvswitch3: SXid (PCI:0000:c3:00.0): 20034, fatal, LTSSM fault up",
        near="NVLink is up on 18 links",
        confidence=0.7,
    ),
    gpu(
        "heat-and-power",
        r"\b(?:overheat\w*|over-?temp\w*|too hot|thermal (?:violation|shutdown|trip|throttl\w*|slowdown|event|limit)"
        r"|power (?:brake|violation|supply|cable|loss|cap violation)|PSU\b|temperature (?:above|over|exceed\w*|threshold"
        r"|too high))",
        "thermal_power",
        scope="node",
        sample="GPU 2 reports a thermal violation of 12 seconds",
        near="the temperature is 41 degrees",
        confidence=0.7,
    ),
    gpu(
        "gpu-program-faults",
        r"\b(?:cuda|hip|hsa|gpu|rocr|kernel)\w*.{0,60}(?:illegal|misaligned|launch[_ ]?(?:failure|failed)"
        r"|device[- ]side assert|assert\b"
        r"|invalid (?:pc|address space)|InvalidAddressSpace|InvalidPc|memory (?:access )?fault|hardware ?stack ?error"
        r"|aperture)",
        "cuda_illegal_access",
        layer="program",
        scope="rank",
        sample="cudaErrorMisalignedAddress",
        near="the cuda kernels were launched",
        confidence=0.7,
    ),
    gpu(
        "gpu-driver",
        r"\b(?:NVRM|nvidia-(?:modeset|uvm|drm|peermem)|amdgpu|kfd|kfd2kgd|amdxcp|Xid)\b",
        "gpu_xid_other",
        sample="NVRM: gpuHandleSanityCheckRegReadError_GM107: Possible bad register read",
        near="the nvidia driver was loaded",
        confidence=0.6,
    ),
    gpu(
        "drivers-of-other-devices",
        r"\b(?:mtgpu|hydcu|mxgpu|habanalabs(?:_cn)?|devdrv|xpurt\w*|tenstorrent|cndrv|cambricon-drv|iluvatar|MXKW|TOPSRT|CNRT"
        r"|CNDrv)\b",
        "gpu_xid_other",
        sample="[XPURT_ERROR] the queue of device 3 was aborted, ret=-712",
        near="the driver of the device was loaded",
        confidence=0.6,
    ),
)  # fmt: skip
