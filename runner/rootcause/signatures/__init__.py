"""Signatures: the lines that logs are searched for. Tables only: `collect.scan` searches, `rootcause.correlation` judges."""

from runner.rootcause.signatures.devices.ascend_codes import ASCEND
from runner.rootcause.signatures.devices.driver_status import DRIVER_STATUS
from runner.rootcause.signatures.devices.gpu_programs import GPU_PROGRAMS
from runner.rootcause.signatures.devices.gpus import DEVICE
from runner.rootcause.signatures.devices.heat import HEAT
from runner.rootcause.signatures.devices.monitors import MONITORS
from runner.rootcause.signatures.devices.plain_words import PLAIN_WORDS
from runner.rootcause.signatures.devices.vendors import VENDORS
from runner.rootcause.signatures.job_end import ENDING
from runner.rootcause.signatures.jobs.clouds import CLOUDS
from runner.rootcause.signatures.jobs.frameworks import FRAMEWORKS
from runner.rootcause.signatures.jobs.kubernetes import KUBERNETES
from runner.rootcause.signatures.jobs.schedulers import BATCH_SYSTEMS
from runner.rootcause.signatures.jobs.supervisors import SUPERVISORS
from runner.rootcause.signatures.machines.bmc import BMC
from runner.rootcause.signatures.machines.hardware import HARDWARE
from runner.rootcause.signatures.machines.machine import MACHINE
from runner.rootcause.signatures.machines.memory import HOST_MEMORY
from runner.rootcause.signatures.machines.nodes import NODES
from runner.rootcause.signatures.machines.parts import PARTS
from runner.rootcause.signatures.machines.storage import STORAGE
from runner.rootcause.signatures.markers import MARKS
from runner.rootcause.signatures.network import NETWORK
from runner.rootcause.signatures.networks.cards_and_switches import CARDS_AND_SWITCHES
from runner.rootcause.signatures.networks.collective_libraries import COLLECTIVE_LIBRARIES
from runner.rootcause.signatures.networks.hangs import HANGS
from runner.rootcause.signatures.networks.meetings import MEETINGS
from runner.rootcause.signatures.networks.mpi import MPI
from runner.rootcause.signatures.program import PROGRAM
from runner.rootcause.signatures.programs.checkpoints import CHECKPOINTS
from runner.rootcause.signatures.programs.data import DATA
from runner.rootcause.signatures.programs.memory import PROGRAM_MEMORY
from runner.rootcause.signatures.programs.numbers import NUMBERS
from runner.rootcause.signatures.programs.settings import SETTINGS
from runner.rootcause.signatures.programs.survived import SURVIVED
from runner.rootcause.signatures.signature import Signature
from runner.rootcause.signatures.taken_back import TAKEN_BACK
from runner.rootcause.signatures.tools.device_reports import DEVICE_REPORTS
from runner.rootcause.signatures.tools.sections import TOOL_SECTIONS
from runner.rootcause.signatures.tools.tables import TOOL_TABLES

SIGNATURES: tuple[Signature, ...] = (
    # Of two rows for one line the first counts: what stopped a kernel, before that it stopped.
    *(*HOST_MEMORY, *HARDWARE, *NODES, *STORAGE),
    *(*DEVICE, *DRIVER_STATUS, *KUBERNETES, *MACHINE, *PROGRAM, *NETWORK, *ENDING, *TAKEN_BACK),
    *(*MONITORS, *VENDORS, *GPU_PROGRAMS, *PLAIN_WORDS, *DEVICE_REPORTS),
    *(*COLLECTIVE_LIBRARIES, *MPI, *CARDS_AND_SWITCHES, *MEETINGS, *HANGS),
    *(*BATCH_SYSTEMS, *CLOUDS, *FRAMEWORKS, *SUPERVISORS),
    *(*ASCEND, *TOOL_TABLES, *TOOL_SECTIONS, *HEAT, *PARTS, *BMC, *MARKS),
    *(*PROGRAM_MEMORY, *DATA, *CHECKPOINTS, *SETTINGS, *NUMBERS, *SURVIVED),
)

__all__ = ["SIGNATURES", "Signature"]
