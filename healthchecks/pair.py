"""`python -P -m healthchecks.pair`: one end of a measurement between two nodes; prints its answer as a JSON object on one line.

The other end runs the same program at the same time. The ranks of this end are children under a deadline, by the probe `pair`: one
for each GPU (NCCL or RCCL), or one on the CPU (gloo). Exit codes: 0 there is an answer, 64 refused (bad arguments).

    rate          bus bandwidth of an all-reduce among all ranks by nccl-tests' formula; null: not measured
    others        the same of all-gather, reduce-scatter and all-to-all, by shorter messages
    rails         the same of GPU i here with GPU i there alone, where both nodes have several
    trouble       why there is no rate, or what was wrong
    at_fault      who failed, as this end sees it: "self", "peer", or "" where it does not show
    busy          why a rate would say nothing of the hardware: other programs took the processors
    not_measured  the trouble is no hardware's: no torch, no right, no route, a port in use
"""

import argparse
import ipaddress
import json
import os
import socket
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import psutil

from healthchecks.check import NodeFacts
from healthchecks.devices.presence import gpus_of
from healthchecks.probe import CPU, DEADLINE_SHARE, Answer, devices_of, run_probes
from healthchecks.rates.bus_bandwidth import bus_factor
from healthchecks.rates.busyness import (
    BUSY,
    MOST_FOREIGN_PERCENT,
    Busyness,
    percent_between,
    read_busyness,
)
from runner.errors import UserError
from runner.facts.contract import COMMUNICATION_PREFIXES

NAME = "pair"
UNIT = "GB/s"
# EX_USAGE of sysexits.h, as in `healthchecks`.
REFUSED = 64
# Of a message. A CPU's is short, so that a link at a tenth of its rate still carries several. Chosen, not measured.
GPU_BYTES, CPU_BYTES = 256 << 20, 4 << 20
# Of the deadline of the ranks: for the other end to come, and until an operation that hangs is an error. Chosen, not measured.
MEET_SHARE, END_SHARE = 0.5, 0.8
# Of the deadline, that messages may be sent at most. Chosen, not measured.
MOST_MEASURING_SHARE = 0.15


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def main(arguments: list[str] | None = None) -> int:
    """Measure this end; return the exit code."""
    try:
        options = _parser().parse_args(arguments)
        _check_times(options)
        os.environ.update(_variables(options.variable))
    except UserError as error:
        print(f"healthchecks.pair: {error}", file=sys.stderr)
        return REFUSED
    print(json.dumps(measure(options), allow_nan=False), flush=True)
    return 0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the ranks of this end, and return its answer."""
    try:
        interface, is_loopback = interface_towards(options.address, options.port)
    except OSError as error:
        trouble = f"no way to {options.address} port {options.port} from here: {error}"
        return _answer(trouble=trouble, not_measured=True)
    is_loopback = (
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface) == interface and is_loopback
    )
    # The sign: this one, not all whose names begin so.
    os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")
    before = _busyness()
    answers = run_ranks(options, is_loopback=is_loopback)
    after = _busyness()
    busy = ""
    if before is None or after is None:
        busy = "how busy others are cannot be read here"
    elif not options.shares_machine:
        percent, what = percent_between(before, after)
        if percent > options.most_foreign_percent:
            busy = f"{BUSY}: {what}, {percent:.3g} percent"
    return judge_end(answers, busy)


def run_ranks(options: argparse.Namespace, *, is_loopback: bool) -> list[Answer]:
    """Run all ranks of this end at the same time; return their answers."""
    vendor, num_gpus = gpus_of(options.sysfs)
    if options.gpus is not None:
        num_gpus = options.gpus
    node = NodeFacts(
        num_gpus=num_gpus,
        gpu_vendor=vendor,
        python=options.python,
        seconds=options.seconds,
        deadline_seconds=options.deadline,
    )
    devices = devices_of(node, with_cpu=False)
    has_gpus = CPU not in devices
    deadline = DEADLINE_SHARE * options.deadline
    common = {
        "end": options.end,
        "num_local": len(devices),
        "address": options.address,
        "port": options.port,
        "is_loopback": is_loopback,
        "backend": "nccl" if has_gpus else "gloo",
        "bytes": GPU_BYTES if has_gpus else CPU_BYTES,
        "measure_seconds": options.seconds,
        "meet_seconds": MEET_SHARE * deadline,
        "end_seconds": END_SHARE * deadline,
    }
    asked = [{**common, "local": local, "device": name} for local, name in enumerate(devices)]
    return run_probes(NAME, node, asked)


def judge_end(answers: Sequence[Answer], busy: str) -> dict[str, Any]:
    """Return the answer of an end from those of its ranks.

    What no hardware is the reason of comes first, then a rank that ended without an answer: its neighbours lost it, not the peer.
    """
    troubles = [(rank, _trouble(answer)) for rank, answer in enumerate(answers)]
    text = "; ".join(f"rank {rank}: {why}" for rank, why in troubles if why)
    if text:
        faults = [str(answer.numbers.get("at_fault", "")) for answer in answers]
        if any(map(_is_not_measured, answers)):
            return _answer(trouble=text, not_measured=True)
        if any(answer.ending == "crashed" for answer in answers) or "self" in faults:
            return _answer(trouble=text, at_fault="self")
        return _answer(trouble=text, at_fault="peer" if "peer" in faults else "")
    wrong = int(answers[0].numbers["all_wrong_words"])
    if wrong:
        here = sum(int(answer.numbers["wrong_words"]) for answer in answers)
        return _answer(trouble=f"{wrong} words of results were wrong, {here} of them here")
    if busy:
        return _answer(busy=busy)
    world = int(answers[0].numbers["world"])
    rails = [
        _rate(found, 2)
        for rail, answer in enumerate(answers)
        if (found := answer.numbers["rails"].get(str(rail)))
    ]
    # Any rank may be the slowest.
    others = {
        name: min(_rate(answer.numbers["others"][name], world, name) for answer in answers)
        for name in answers[0].numbers["others"]
    }
    return _answer(
        others=others, rate=min(_rate(answer.numbers, world) for answer in answers), rails=rails
    )


def interface_towards(address: str, port: int) -> tuple[str, bool]:
    """Return the interface that packets to an address leave by, of an own address the one that has it; and whether it is loopback.

    A host may know its own name by a loopback address, where no peer finds it. Raises OSError.
    """
    family, kind, protocol, _, target = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as route:
        # Nothing is sent.
        route.connect(target)
        own = str(route.getsockname()[0]).partition("%")[0]
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address.partition("%")[0] == own for each in addresses):
            return name, ipaddress.ip_address(own).is_loopback
    raise OSError(f"no interface has {own}")


def _is_not_measured(answer: Answer) -> bool:
    """Whether no hardware is the reason: also where an interpreter ended before the probe had begun."""
    has_begun = bool(answer.numbers.get("at"))
    never_ran = answer.ending == "not run" or (answer.ending == "crashed" and not has_begun)
    return never_ran or bool(answer.numbers.get("not_measured"))


def _trouble(answer: Answer) -> str:
    error, at = answer.numbers.get("error"), answer.numbers.get("at")
    if answer.trouble:
        return f"at {at}: {answer.trouble}" if at else answer.trouble
    if error or at != "the end":
        return f"came to {at}: {error or 'half an answer'}"
    return ""


def _rate(found: Mapping[str, Any], num_ranks: int, name: str = "all_reduce") -> float:
    seconds = statistics.median(map(float, found["times"]))
    return float(found["size"]) * bus_factor(name, num_ranks) / seconds / 1e9


def _answer(**found: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "rate": None,
        "others": {},
        "rails": [],
        "unit": UNIT,
        "trouble": "",
        "at_fault": "",
        "busy": "",
    }
    return {**empty, "not_measured": False, **found}


def _busyness() -> Busyness | None:
    try:
        return read_busyness()
    except (OSError, ValueError):
        return None


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -P -m healthchecks.pair",
        description="Measure this node together with another one, where the other end runs at the same time.",
    )
    add = parser.add_argument
    add("--end", type=int, choices=(0, 1), required=True, help="0: the other one comes to it")
    add("--address", required=True, help="of end 0, for both ends")
    add("--port", type=_port, required=True, help="a free one of end 0, for both ends")
    add("--python", required=True, metavar="FILE", help="the interpreter of the runs, with torch")
    add("--seconds", type=_positive, default=5.0, metavar="N", help="that messages are sent")
    add("--deadline", type=_positive, default=60.0, metavar="N", help="for all of it, in seconds")
    add("--gpus", type=int, metavar="N", help="ranks; by default the GPUs that are found")
    add("--sysfs", default=NodeFacts().sysfs, metavar="DIR", help="where GPUs are found")
    add("--variable", action="append", default=[], metavar="NAME=VALUE", help=_VARIABLE_HELP)
    add(
        "--most-foreign-percent",
        type=float,
        default=MOST_FOREIGN_PERCENT,
        metavar="N",
        help=_FOREIGN_HELP,
    )
    add("--shares-machine", action="store_true", help="others' use of processors is no reason")
    return parser


_FOREIGN_HELP = "of the processors that others may use; beyond that no rate is reported"
_VARIABLE_HELP = (
    f"a setting of the runs: {', '.join(f'{prefix}*' for prefix in COMMUNICATION_PREFIXES)}"
)


def _check_times(options: argparse.Namespace) -> None:
    most = MOST_MEASURING_SHARE * options.deadline
    if options.seconds > most:
        raise UserError(
            f"--seconds {options.seconds:g} leaves too little of --deadline {options.deadline:g} "
            f"for both ends to start and to meet: at most {most:g}"
        )


def _variables(given: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for name, sign, _ in pairs:
        if not sign or not name.startswith(COMMUNICATION_PREFIXES):
            known = ", ".join(f"{prefix}*" for prefix in COMMUNICATION_PREFIXES)
            raise UserError(f"--variable {name!r} is no NAME=VALUE with one of {known}")
    return {name: value for name, _, value in pairs}


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is no port")
    return int(text)


def _positive(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number of seconds")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
