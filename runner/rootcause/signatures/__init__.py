"""Signatures: the lines that logs are searched for. Tables only: `collect.scan` searches, `rootcause.correlation` judges."""

from runner.rootcause.signatures.devices.ascend_codes import ASCEND
from runner.rootcause.signatures.devices.driver_status import DRIVER_STATUS
from runner.rootcause.signatures.devices.gpus import DEVICE
from runner.rootcause.signatures.devices.heat import HEAT
from runner.rootcause.signatures.job_end import ENDING
from runner.rootcause.signatures.jobs.clouds import CLOUDS
from runner.rootcause.signatures.jobs.frameworks import FRAMEWORKS
from runner.rootcause.signatures.jobs.kubernetes import KUBERNETES
from runner.rootcause.signatures.jobs.schedulers import BATCH_SYSTEMS
from runner.rootcause.signatures.jobs.supervisors import SUPERVISORS
from runner.rootcause.signatures.machines.bmc import BMC
from runner.rootcause.signatures.machines.machine import MACHINE
from runner.rootcause.signatures.machines.parts import PARTS
from runner.rootcause.signatures.markers import MARKS
from runner.rootcause.signatures.network import NETWORK
from runner.rootcause.signatures.program import PROGRAM
from runner.rootcause.signatures.signature import Signature
from runner.rootcause.signatures.taken_back import TAKEN_BACK
from runner.rootcause.signatures.tools.sections import TOOL_SECTIONS
from runner.rootcause.signatures.tools.tables import TOOL_TABLES

SIGNATURES: tuple[Signature, ...] = (
    *(*DEVICE, *DRIVER_STATUS, *KUBERNETES, *MACHINE, *PROGRAM, *NETWORK, *ENDING, *TAKEN_BACK),
    *(*BATCH_SYSTEMS, *CLOUDS, *FRAMEWORKS, *SUPERVISORS),
    *(*ASCEND, *TOOL_TABLES, *TOOL_SECTIONS, *HEAT, *PARTS, *BMC, *MARKS),
)

__all__ = ["SIGNATURES", "Signature"]
