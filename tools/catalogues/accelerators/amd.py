"""AMD: the amdgpu driver of Linux (with its compute driver and power management), and the ROCr runtime."""

import re
from collections import Counter

from tools.catalogues.c_source.levels import level_by_name
from tools.catalogues.native.call_sites import CallSite
from tools.catalogues.native.classes import rules
from tools.catalogues.native.emitter import Emitter, folders
from tools.catalogues.rows import Header, Level

_LINUX = "drivers/gpu/drm/amd"
_DRIVER_RULES = rules(
    (
        r"xgmi|wafl",
        "nvlink_error",
        "a link between GPUs",
    ),
    (r"poison is consumed", "gpu_xid_other", "the driver contains it by a reset"),
    (
        r"(?<!\d )(?<!new )uncorrectable|poison|bad page|\bECC\b|retired? page|page retirement|\bUE\b"
        r"|uncorrected|row repair|unrecoverable",
        "gpu_ecc",
        "memory of the device",
    ),
    (
        r"lost from bus|fall(?:en|s)? off|device (?:is )?(?:lost|gone|unplugged)|pci (?:config )?(?:error|read)"
        r"|pcie error|link is (?:down|dead)|all ones",
        "gpu_lost",
        "the bus",
    ),
    (
        r"over ?heat|over temp|thermal|temperature .*(?:exceed|limit|critical|range)|power (?:brake|limit)"
        r"|over ?current|voltage|fan .*fail|\bCTF\b",
        "thermal_power",
        "temperature or power",
    ),
    (
        r"\bhang|hung|fatal error|vram|reset|time-?d? ?out|timeout|vram is lost|page fault|firmware|microcode|\bucode|"
        r"\b(?:ring|ib) test|halt|preempt|evict.*fail|fence|queue.*(?:fail|unmap)|scheduler",
        "gpu_xid_other",
        "the device or its firmware does not answer",
    ),
    (
        r"invalid|unsupported|not supported|unknown|illegal|bad (?:arg|param|flag|size)|module param|"
        r"permission|not allowed|exceeds|too (?:big|large|many|small)|must be",
        "config_error",
        "what the driver was asked for",
    ),
)
_ROCR_RULES = rules(
    (r"memory access fault|memory fault|page not present|write access", "cuda_illegal_access", ""),
    (r"hw exception|hardware exception|gpu hang|reset", "gpu_xid_other", "the device"),
    (r"out of (?:memory|resources)|alloc\w* fail", "cuda_oom", "memory of the device"),
    (r"queue .*(?:error|abort)|aborted|illegal|exception|trap", "cuda_illegal_access", "a kernel"),
    (
        r"no (?:gpu|agents|device)|/dev/kfd|unable to open|kfd",
        "gpu_lost",
        "the compute driver has no device",
    ),
    (r"invalid|not supported|unsupported|version|env|unable to load|fail(?:ed)? to load",
     "config_error", "a setting, or what is installed"),
)  # fmt: skip


# Logged as information, though the GPU does not come back.
_UNDERSTATED = re.compile(
    r"GPU reset\(%d\) failed|GPU reset end with ret|Bailing on TDR|VRAM is lost|reaches threshold"
)


def _driver_level(call: CallSite) -> Level | None:
    if call.name == "RAS_EVENT_LOG":
        text = " ".join(call.arguments)
        is_bad = re.search(r"\bun(?:correctable|corrected)|poison|gpu reset", text, re.IGNORECASE)
        return "error" if is_bad else "info"
    if any(_UNDERSTATED.search(argument) for argument in call.arguments[1:3]):
        return "error"
    return level_by_name(call.name)


def _rocr_level(call: CallSite) -> Level | None:
    if call.name == "fprintf":
        return "error" if call.arguments and call.arguments[0] == "stderr" else None
    if call.name == "debug_print":
        return "debug"
    return level_by_name(call.name)


_EMITTERS = {
    "amdgpu": Emitter(
        Header(
            "amdgpu",
            "Linux 6.12",
            made="2026-11-26",
            program=__name__,
            source="Debian source package linux 6.12.107",
            style="printf",
            layer="device",
            scope="gpu",
        ),
        "linux",
        "linux/linux-6*",
        below=(f"{_LINUX}/amdgpu", f"{_LINUX}/amdkfd", f"{_LINUX}/pm", f"{_LINUX}/amdxcp"),
        calls=re.compile(
            r"(?:dev|drm|pr|DRM|DRM_DEV)_(?:emerg|alert|crit|err|error|ERROR|warn|WARN|info|INFO|notice"
            r"|NOTE|dbg|debug|DEBUG)(?:_ratelimited|_once|_ONCE|_RATELIMITED|_KMS|_DRIVER)?|RAS_EVENT_LOG"
        ),
        level=_driver_level,
        rules=_DRIVER_RULES,
        folders=folders(
            (r"_ras|umc|_mca|_aca|eeprom", "gpu_ecc"),
            (r"xgmi", "nvlink_error"),
            (
                r"display|connector|encoder|atombios|dce|i2c|audio|vkms|acpi|drv\.c|ioctl|chardev",
                "",
            ),
            (
                r"gfx|sdma|psp|smu|vcn|jpeg|mes|_vm|gmc|hub|kfd|ring|fence|job|reset|_ih",
                "gpu_xid_other",
            ),
        ),
        # Chips that no cluster has, and displays.
        without=r"legacy-dpm|powerplay|/dce_|/si[_.]|/cik|uvd|vce|atom|connector|encoder|vkms|securedisplay",
        words=("amdgpu", "kfd", "drm"),
        # Each line names the driver or the subsystem.
        always_required=True,
    ),
    "rocr": Emitter(
        Header(
            "ROCr runtime",
            "6.4.3",
            made="2026-11-26",
            program=__name__,
            source="Debian source package rocr-runtime 6.4.3",
            style="printf",
            layer="program",
            scope="rank",
        ),
        "rocr-runtime",
        "ROCm-ROCR-Runtime-*",
        below=("runtime/hsa-runtime/core", "runtime/hsa-runtime/loader", "libhsakmt/src"),
        calls=re.compile(
            r"fprintf|pr_(?:err|warn|info|debug)(?:_once)?|debug_print|hsakmt_print_\w+"
        ),
        level=_rocr_level,
        rules=_ROCR_RULES,
        folders=folders((r".", "")),
        words=("hsa", "gpu", "kfd", "rocr"),
    ),
}
NAMES = tuple(_EMITTERS)


def make(name: str) -> Counter[str]:
    """Write the catalogue and return its rows by level. Raises SourceMissing."""
    return _EMITTERS[name].make(name)
