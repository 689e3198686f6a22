"""Lines about parts that are too hot, or have too little power, and slow down or switch off."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_AMD = "Linux, drivers/gpu/drm/amd/pm: swsmu, and powerplay of older GPUs"
_THROTTLE = "Linux, arch/x86/kernel/cpu/mce/therm_throt.c"
_GAUDI = "Linux, drivers/accel/habanalabs: clocks of a device that is too hot, or at the limit of its power"

_hot = partial(Signature, fault="thermal_power", layer="device", scope="gpu")

HEAT = (
    _hot(
        "amd-over-temperature",
        r"\bGPU over temperature range ?(?:\(SW CTF\) ?)?detected|\bGPU (?:HW )?Critical Temperature Fault"
        r"|System is going to shutdown due to GPU \w+ CTF",
        is_lasting=True,
        source=_AMD,
        sample="amdgpu: [powerplay] GPU over temperature range detected on PCIe 5:0.0!",
        near="amdgpu: [powerplay] GPU under temperature range detected on PCIe 5:0.0!",
    ),
    _hot(
        "amd-throttled-by-heat",
        r"\bGPU thermal throttling temperature reached",
        source=_AMD + ": for a moment, as often as not",
        sample="amdgpu 0000:29:00.0: WARN: GPU thermal throttling temperature reached, expect performance decrease. HBM.",
        near="amdgpu 0000:29:00.0: GPU thermal throttling temperature is 94 C",
    ),
    _hot(
        "clocks-throttled",
        r"(?i)(?P<subject>\bhl\d+\b)?.{0,60}\b(?:clock throttling due to (?:overheating|power consumption)"
        r"|thermal clock throttling|power clock throttling)",
        role="interrupted",
        source=_GAUDI,
        sample="habanalabs hl3: Clock throttling due to overheating",
        near="habanalabs hl3: Clock throttling is turned off",
    ),
    _hot(
        "clocks-restored",
        r"(?i)(?P<subject>\bhl\d+\b)?.{0,60}\b(?:thermal|power) envelop\w* is safe",
        role="cleared",
        weight="supporting",
        source=_GAUDI,
        sample="habanalabs hl3: Thermal envelop is safe, back to optimal clock",
        near="habanalabs hl3: Thermal envelope is not known",
    ),
    _hot(
        "sensor-reading-critical",
        r"(?:^|[^A-Za-z])(?:[Tt]emp|TEMP|[Ff]an|FAN)[^|\n]{0,40}\|[^|\n]{1,40}\| +(?:cr|nr|ucr|unr|lcr|lnr)\b",
        scope="node",
        source="ipmitool, sdr and sensor: the column of the state",
        sample="Inlet Temp       | 47 degrees C      | cr",
        near="Inlet Temp       | 27 degrees C      | ok",
    ),
    _hot(
        "sensor-asserts-heat",
        r"\bPROCHOT#? (?:is )?[Aa]ssert|\b(?:Critical|Non-recoverable) Temperature (?:is )?[Aa]ssert|\bTCC Activation [Aa]ssert",
        scope="node",
        source="OpenBMC and Facebook's ipmid: events of processors in the system event log",
        sample="SEL Entry: FRU: 1, Sensor: CPU0_THERM_STATUS (0x1C), Event Data: (00FFFF) CPU Critical Temperature Assertion",
        near="SEL Entry: FRU: 1, Sensor: CPU0_THERM_STATUS (0x1C), Event Data: (00FFFF) CPU Critical Temperature Deassertion",
    ),
    _hot(
        "heat-in-a-test",
        r"\bThermal violations? (?:totaling|detected)",
        source="dcgmi diag: a GPU lowered its clocks while it was tested",
        sample="| Warning                   | GPU 0 Thermal violations totaling 13.3 seconds |",
        near="| Warning                   | GPU 0 was tested for 13.3 seconds              |",
    ),
    _hot(
        "cpu-throttled",
        r"(?i)(?:(?P<subject>CPU\d+): Core|(?P<target>Package|Core|CPU)) temperature (?:is )?above threshold,"
        r" cpu clock (?:is )?throttled",
        layer="consequence",
        scope="node",
        role="interrupted",
        source=_THROTTLE + ": for a moment, as often as not",
        sample="CPU17: Package temperature is above threshold, cpu clock is throttled (total events = 5213)",
        near="CPU17: Package temperature/speed normal",
    ),
    _hot(
        "cpu-throttled-often",
        r"(?i)temperature (?:is )?above threshold, cpu clock (?:is )?throttled \(total events = \d{5}",
        layer="consequence",
        scope="node",
        source=_THROTTLE + ": since the machine was started; the number of digits is chosen",
        sample="CPU17: Package temperature is above threshold, cpu clock is throttled (total events = 110245)",
        near="CPU17: Package temperature is above threshold, cpu clock is throttled (total events = 5213)",
    ),
    _hot(
        "cpu-cooled",
        r"(?i)(?:(?P<subject>CPU\d+): Core|(?P<target>Package|Core|CPU)) temperature/speed normal",
        layer="consequence",
        scope="node",
        role="cleared",
        weight="supporting",
        source=_THROTTLE,
        sample="CPU17: Package temperature/speed normal (total events = 2)",
        near="CPU17: Package temperature above threshold",
    ),
    _hot(
        "card-too-hot",
        r"\bmlx5_core\b.*\b[Hh]igh [Tt]emperature on sensors? with bit|\btemp\d+: +\+?\d.{0,80}\bALARM \(CRIT\)"
        r"|\bCooling/Fan Fault +: true\b",
        scope="node",
        source="Linux, mlx5_core; lm-sensors; ipmitool, chassis status",
        sample="mlx5_core 0000:5e:00.0: temp_warn:193:(pid 0): High temperature on sensors with bit set 0 0x1",
        near="mlx5_core 0000:5e:00.0: temp_warn:193:(pid 0): temperature is normal",
    ),
)
