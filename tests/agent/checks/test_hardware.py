"""Hardware: the identity of a machine, read from folders that play /sys; malformed firmware entries identify nothing."""

import json
import logging
from pathlib import Path

import pytest

from runner.agent.checks import hardware_parts
from runner.errors import PermanentError
from tests.agent.node import Node

BOARD, UUID = "CN7475123A00G2", "4c4c4544-0038-4710-8052-b4c04f585332"


class Machine:
    """A folder that plays a machine's root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.node = root / "node"
        self.node.mkdir()

    def board(self, *, serial: str = "", uuid: str = "") -> None:
        """Write a firmware field."""
        dmi = self.root / "sys/class/dmi/id"
        dmi.mkdir(parents=True)
        for name, text in (("board_serial", serial), ("product_uuid", uuid)):
            (dmi / name).write_text(f"{text}\n")

    def card(self, name: str, address: str, *, is_physical: bool = True, own: str = "") -> None:
        """Add an interface; `own`: its address before it joined a bond."""
        folder = self.root / "sys/class/net" / name
        folder.mkdir(parents=True)
        (folder / "address").write_text(f"{address}\n")
        if is_physical:
            (folder / "device").mkdir()
        if own:
            (folder / "bonding_slave").mkdir()
            (folder / "bonding_slave/perm_hwaddr").write_text(f"{own}\n")

    def find(self, *gpus: str, shares_machine: bool = False) -> hardware_parts.HardwareIdentity:
        """Read it as an agent does."""
        return hardware_parts.find(
            self.node, shares_machine=shares_machine, gpus=lambda: gpus, root=self.root
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Give a machine without anything."""
    return Machine(tmp_path)


def test_the_board_comes_first_and_all_else_is_a_part(machine: Machine) -> None:
    """Board serial, product UUID, GPUs and cards are parts, in this order; the first is the hardware."""
    machine.board(serial=BOARD, uuid=UUID)
    machine.card("eth0", "08:C0:EB:12:34:56")
    found = machine.find("GPU-1", "GPU-2")
    assert found.hardware == f"board:{BOARD}"
    assert found.parts == (
        f"board:{BOARD}",
        f"board:{UUID}",
        "gpu:GPU-1",
        "gpu:GPU-2",
        "mac:08:c0:eb:12:34:56",
    )
    assert not (machine.node / "hardware.json").exists()


@pytest.mark.parametrize(
    "malformed",
    [
        "To be filled by O.E.M.",
        "To Be Filled By O.E.M.",
        "Default string",
        "None",
        "Not Specified",
        "0000000000",
        "................",
        "xxxxxxxx",
        "0123456789",
        "Base Board Serial Number",
        "00000000-0000-0000-0000-000000000000",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        "03000200-0400-0500-0006-000700080009",
        "",
    ],
)
def test_what_firmware_leaves_there_names_no_board(machine: Machine, malformed: str) -> None:
    """Placeholders, zeros and UUIDs that many boards share are passed over; the GPUs then come first."""
    machine.board(serial=malformed, uuid=malformed)
    assert machine.find("GPU-1") == hardware_parts.HardwareIdentity("gpu:GPU-1", ("gpu:GPU-1",))


def test_only_cards_made_of_metal_count(machine: Machine) -> None:
    """Bridges, containers' interfaces and made-up addresses are skipped; a card in a bond counts with its own."""
    machine.card("br0", "08:c0:eb:00:00:01", is_physical=False)
    machine.card("veth1", "08:c0:eb:00:00:02", is_physical=False)
    machine.card("docker0", "02:42:ac:11:00:02", is_physical=False)
    machine.card("lo", "00:00:00:00:00:00", is_physical=False)
    # a hypervisor's
    machine.card("ens3", "52:54:00:12:34:56")
    machine.card("ib0", "80:00:00:48:fe:80:00:00:00:00:00:00:b8:59:9f:03:00:f9:8a:6a")
    machine.card("ens4", "08:c0:eb:00:00:07", own="08:c0:eb:00:00:08")
    assert machine.find().parts == ("mac:08:c0:eb:00:00:08",)


def test_nodes_that_share_a_machine_have_a_file_each(machine: Machine) -> None:
    """A local node makes its file at the first start, keeps it, and nothing of the machine is a part of it."""
    machine.board(serial=BOARD)
    first = machine.find("GPU-1", shares_machine=True)
    serial = json.loads((machine.node / "hardware.json").read_text())["serial"]
    assert first == hardware_parts.HardwareIdentity(f"file:{serial}", (f"file:{serial}",))
    assert machine.find("GPU-1", shares_machine=True) == first


def test_a_file_wins_where_there_is_one(machine: Machine) -> None:
    """A file with serial and parts overrides the machine's own hardware."""
    machine.board(serial=BOARD)
    (machine.node / "hardware.json").write_text('{"serial": "h1", "parts": ["gpu:G", "rack:7"]}')
    assert machine.find() == hardware_parts.HardwareIdentity(
        "file:h1", ("file:h1", "gpu:G", "rack:7")
    )


def test_half_a_surrogate_pair_in_the_file_is_escaped(machine: Machine) -> None:
    """JSON can hold what no message can."""
    (machine.node / "hardware.json").write_text('{"serial": "\\ud800", "parts": ["\\udfff"]}')
    assert machine.find().parts == ("file:\\ud800", "\\udfff")


def test_a_machine_that_nothing_names_gets_a_file(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """Where nothing identifies a machine the agent makes a file, and logs it once."""
    with caplog.at_level(logging.WARNING, "stoker.agent"):
        found = machine.find()
        assert machine.find() == found
    assert found.hardware.startswith("file:")
    assert caplog.text.count("no board serial, GPU or network card") == 1


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"serial": 3}', '{"serial": ""}', '{"serial": "a", "parts": "b"}']
)
def test_a_file_that_cannot_be_read_is_named(machine: Machine, text: str) -> None:
    """A file without a serial ends the agent with a message that names the file, and the agent does not overwrite it."""
    path = machine.node / "hardware.json"
    path.write_text(text)
    with pytest.raises(PermanentError, match=r"hardware\.json should hold"):
        machine.find()
    assert path.read_text() == text


@pytest.mark.e2e
def test_an_agent_reports_the_hardware_under_it(node: Node) -> None:
    """The agent of a local node joins with its file's serial, also after a restart."""
    node.start_agent()
    node.kill_agent()
    node.start_agent()
    serial = json.loads((node.folder / "hardware.json").read_text())["serial"]
    joined = node.signals("NodeJoined")
    # Repeated until an assignment answers.
    own = f"file:{serial}"
    assert {(fact.hardware, fact.parts) for fact in joined} == {(own, (own,))}
    assert len({fact.instance_id for fact in joined}) == 2
