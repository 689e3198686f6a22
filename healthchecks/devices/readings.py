"""What was read from devices: values, and why there is none."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# A counter of 32 bits that is full, or an error in place of a count.
SATURATED = (1 << 32) - 1
# No counter gets there by counting: it is one of 64 bits that is full, or a negative number. Chosen.
MAX_COUNT = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One answer. Without a value, `trouble` is why it could not be read; without either, the device has no such thing."""

    value: float | None = None
    text: str = ""
    trouble: str = ""

    @property
    def is_absent(self) -> bool:
        """Whether the device says that it has no such thing."""
        return self.value is None and not self.trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device, or the system of all. `series`: by key, in the order in which they were read."""

    name: str
    series: Mapping[str, tuple[Reading, ...]]
    # Why a key is missing.
    trouble: str = "not read"

    def last(self, key: str) -> Reading:
        """Return the newest reading."""
        return self.all(key)[-1]

    def all(self, key: str) -> tuple[Reading, ...]:
        """Return all readings of a key, at least one."""
        return self.series.get(key) or (Reading(trouble=self.trouble),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """All devices that one source knows. `trouble`: what hung or failed, so that the rest is missing."""

    source: str
    devices: tuple[Device, ...] = ()
    system: Device = field(default_factory=lambda: Device(name="system", series={}))
    trouble: str = ""


def counter(reading: Reading) -> Reading:
    """Return a counter's reading, without a value if it is full or negative: such a value is no count."""
    value = reading.value
    if value is None or (0 <= value < MAX_COUNT and value != SATURATED):
        return reading
    return Reading(trouble=f"{value:.0f} is no count: the counter is full or not valid")


def flag(text: str) -> Reading:
    """Return 1 for yes, 0 for no, as the tools write them."""
    match text.strip().lower():
        case "yes" | "enabled" | "active" | "true":
            return Reading(value=1, text=text)
        case "no" | "disabled" | "not active" | "false" | "none":
            return Reading(value=0, text=text)
    return number(text)


def number(text: str | None) -> Reading:
    """Return the number that a text begins with, as in `27 C` or `16x`; N/A is absent, any other text is not understood."""
    words = (text or "").replace("x", " ").split()
    if not words or words[0] in ("N/A", "[N/A]", "-") or "deprecated" in words:
        return Reading()
    try:
        return Reading(value=float(words[0]), text=(text or "").strip())
    except ValueError:
        return Reading(trouble=f"{(text or '').strip()[:80]!r} is no number")


def parse_lines(lines: Iterable[str], *, source: str, ending: str) -> Survey:
    """Read what a probe printed, one JSON object a line; `ending` is how it ended, "" if in order.

    A line that announces a part and has no answer after it names the part that hung or failed.
    """
    series: dict[int, dict[str, list[Reading]]] = {}
    part, is_complete, trouble = "its start", False, ""
    for line in lines:
        try:
            answer = json.loads(line)
            if "part" in answer:
                part = str(answer["part"])
            elif "end" in answer:
                is_complete = True
            elif "refused" in answer:
                trouble = str(answer["refused"])
            else:
                reading = Reading(
                    value=answer["value"], text=answer["text"], trouble=answer["trouble"]
                )
                series.setdefault(int(answer["device"]), {}).setdefault(answer["key"], []).append(
                    reading
                )
        except (ValueError, LookupError, TypeError):
            trouble = f"half an answer about {part}: {line[:80]!r}"
            break
    if not is_complete and not trouble:
        trouble = f"{ending or 'ended'} in {part}"
    devices = tuple(
        Device(name=_name(number, keys), series=_fixed(keys), trouble=trouble or "not read")
        for number, keys in sorted(series.items())
        if number >= 0
    )
    system = Device(name="system", series=_fixed(series.get(-1, {})), trouble=trouble or "not read")
    return Survey(source=source, devices=devices, system=system, trouble=trouble)


def _fixed(keys: Mapping[str, list[Reading]]) -> dict[str, tuple[Reading, ...]]:
    return {key: tuple(readings) for key, readings in keys.items()}


def _name(index: int, keys: Mapping[str, list[Reading]]) -> str:
    address = keys["pci"][-1].text if "pci" in keys else ""
    return f"GPU {index} ({address})" if address else f"GPU {index}"
