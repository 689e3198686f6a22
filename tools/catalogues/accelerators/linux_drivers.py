"""Drivers of accelerators that Linux has beside amdgpu: Intel's Gaudi (habanalabs) and GPUs (xe, i915)."""

import re
from collections import Counter

from tools.catalogues.c_source.levels import level_by_name
from tools.catalogues.native.call_sites import CallSite
from tools.catalogues.native.classes import rules
from tools.catalogues.native.emitter import Emitter, folders
from tools.catalogues.rows import Header, Level

_RULES = rules(
    (r"\bECC\b|uncorrectable|\bSERR\b|\bDERR\b|parity|poison", "gpu_ecc", "memory of the device"),
    (
        r"not usable|unusable|wedged|failed to (?:communicate|initiali[sz]e (?:the )?h/?w|reset)|heartbeat"
        r"|device (?:is )?(?:lost|gone|dead|unplugged)|cpu is not responding|boot (?:status|error|failed)"
        r"|failed to (?:load|init)\w* .*"
        r"(?:firmware|fw|cpu|device)|surviv",
        "gpu_lost",
        "the device or its firmware does not come up",
    ),
    (r"thermal|overheat|temperature|power (?:supply|limit)|throttl", "thermal_power", "temperature or power"),
    (
        r"out of memory|failed to allocate|no memory|allocation (?:of|failed)",
        "host_oom",
        "memory of the host",
    ),
    (r"razwi|page fault|mmu|illegal|access violation", "cuda_illegal_access", "an access of a program"),
    (
        r"timed?[ -]?out|time-?out|hang|hung|stuck|reset|fatal|engine|halt|not finished|failed",
        "gpu_xid_other",
        "the device does not do what it was asked for",
    ),
    (r"invalid|unsupported|not supported|unknown|must be|permission|too (?:big|large|many)", "", ""),
)  # fmt: skip
_CALLS = re.compile(
    r"(?:dev|drm|pr|DRM|xe_gt|gt|guc|huc|xe_guc|gaudi2_print_event|gaudi_print)_(?:emerg|alert|crit|err|error|ERROR|warn|WARN"
    r"|info|INFO|notice|NOTE|dbg|debug|DEBUG)(?:_ratelimited|_once|_ONCE)?|gaudi2_print_event"
)


def _level(call: CallSite) -> Level | None:
    if call.name == "gaudi2_print_event":
        return "error"
    return level_by_name(call.name)


def _emitter(name: str, below: tuple[str, ...], words: tuple[str, ...], without: str) -> Emitter:
    return Emitter(
        Header(
            name,
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
        below=below,
        calls=_CALLS,
        level=_level,
        rules=_RULES,
        folders=folders((r".", "")),
        without=without,
        words=words,
        # Each line names the driver or the device.
        always_required=True,
    )


_EMITTERS = {
    "linux_gaudi": _emitter(
        "Linux, driver of Gaudi",
        ("drivers/accel/habanalabs",),
        ("habanalabs", "accel accel"),
        r"debugfs|coresight|security|/goya/|/include/",
    ),
    "linux_xe": _emitter(
        "Linux, driver xe", ("drivers/gpu/drm/xe",), ("xe 0000:", "xe 000"), r"/tests/|display"
    ),
    "linux_i915": _emitter(
        "Linux, driver i915",
        ("drivers/gpu/drm/i915/gt", "drivers/gpu/drm/i915/gem", "drivers/gpu/drm/i915/i915_gpu_error.c"),
        ("i915 0000:",),
        r"selftest|/display/",
    ),
}  # fmt: skip
NAMES = tuple(_EMITTERS)


def make(name: str) -> Counter[str]:
    """Write the catalogue and return its rows by level. Raises SourceMissing."""
    return _EMITTERS[name].make(name)
