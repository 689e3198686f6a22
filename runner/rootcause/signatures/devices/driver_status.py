"""Lines of NVIDIA's kernel module beside Xids: failed assertions and calls, by the status that they name (nvstatuscodes.h)."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_SOURCE = "NVIDIA open kernel modules, nvstatuscodes.h and nvassert.h"
# How the module names what failed: an assertion, or one of its functions.
_NVRM = r"NVRM: .{0,300}\[?\bNV_ERR_"

_status = partial(Signature, layer="device", scope="gpu", source=_SOURCE)

DRIVER_STATUS = (
    _status(
        "driver-status-lost",
        _NVRM + r"(?:GPU_IS_LOST|RESET_REQUIRED|GPU_NOT_FULL_POWER|GPU_DMA_NOT_INITIALIZED)\b",
        fault="gpu_lost",
        sample="NVRM: nvAssertOkFailedNoLog: Assertion failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F) "
        "returned from gpuSanityCheck(pGpu) @ gpu.c:812",
        near="NVRM: nvAssertOkFailedNoLog: Assertion failed: Call not supported [NV_ERR_NOT_SUPPORTED] (0x00000056) "
        "returned from gpuInit(pGpu) @ gpu.c:812",
    ),
    _status(
        "driver-status-ecc",
        _NVRM + r"(?:ECC_ERROR|GPU_MEMORY_ONLINING_FAILURE)\b",
        fault="gpu_ecc",
        sample="NVRM: nvAssertOkFailedNoLog: Assertion failed: ECC error [NV_ERR_ECC_ERROR] (0x0000000A) returned from scrub",
        near="NVRM: nvAssertOkFailedNoLog: Assertion failed: Object not found [NV_ERR_OBJECT_NOT_FOUND] (0x00000057) "
        "returned from scrub",
    ),
    _status(
        "driver-status-links",
        _NVRM + r"(?:NVLINK_\w+|FABRIC_\w+)\b",
        fault="nvlink_error",
        layer="link",
        sample="NVRM: knvlinkTrain: failed: Nvlink training error [NV_ERR_NVLINK_TRAINING_ERROR] (0x0000007F)",
        near="NVRM: knvlinkTrain: failed: Call not supported [NV_ERR_NOT_SUPPORTED] (0x00000056)",
    ),
    _status(
        "driver-status-failed",
        _NVRM + r"(?:TIMEOUT|TIMEOUT_RETRY|GPU_IN_FULLCHIP_RESET|FLCN_ERROR|FATAL_ERROR|RC_ERROR"
        r"|MEMORY_TRAINING_FAILED"
        r"|RISCV_ERROR|INSUFFICIENT_POWER)\b"
        r"|NVRM: nvAssertFailed(?:NoLog)?: Assertion failed: |NVRM: rm_init_adapter failed"
        r"|NVRM: .{0,120}\b(?:RpcSanityCheckFailure|waiting for RPC response from|GPU is probably locked)",
        fault="gpu_xid_other",
        sample="NVRM: nvAssertOkFailedNoLog: Assertion failed: Timeout occurred [NV_ERR_TIMEOUT] (0x00000065) returned from "
        "kgspWaitForRmInitDone(pGpu) @ kernel_gsp.c:4321",
        near="NVRM: nvAssertOkFailedNoLog: Assertion failed: Invalid argument to call [NV_ERR_INVALID_ARGUMENT] (0x0000001F) "
        "returned from kgspWait(pGpu) @ kernel_gsp.c:4321",
    ),
)
