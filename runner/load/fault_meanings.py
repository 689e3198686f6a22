"""What the names of faults mean, in plain words, and what a person does first. A test compares the names with `FAULTS`."""

from collections.abc import Mapping
from typing import NamedTuple

from runner.facts.faults import ActionClass


class Meaning(NamedTuple):
    """A fault for people: what it is, and what a person does first."""

    what: str
    advice: str


# What the classes of action mean.
ACTION_MEANINGS: Mapping[ActionClass, str] = {
    "restart": "start the same nodes again from the newest checkpoint",
    "swap": "take the node out, and start again with a spare in its place",
    "rewind": "go back to a checkpoint from before the first bad step",
    "wait": "wait until it is over, then start again",
    "page": "a person looks before anything starts again",
    "stop": "do not start again before a person changes something: it would fail again",
    "none": "nothing",
}

MEANINGS: Mapping[str, Meaning] = {
    "rank_crash": Meaning(
        "a rank ended by itself, and no line says why", "read the last lines of that rank"
    ),
    "launch_failed": Meaning(
        "a node could not start its ranks", "read the agent's log on that node"
    ),
    "nodes_down": Meaning(
        "all processes of all nodes ended at once", "look for a power cut or a reboot"
    ),
    "devices_busy": Meaning(
        "another process holds memory of the node's devices", "end that process: `nvidia-smi`"
    ),
    "settings_refused": Meaning(
        "the trainer reports that its settings cannot work", "correct the settings in run.yaml"
    ),
    "configuration_drift": Meaning(
        "the run would start with other code or packages than before",
        "approve the change, or undo it",
    ),
    "checkpoint_refused": Meaning(
        "a checkpoint is not what its manifest says", "look at the storage below the checkpoints"
    ),
    "node_silent": Meaning("a node sends no heartbeats", "look whether the node is up"),
    "domain_silent": Meaning(
        "all nodes behind one switch, or in one rack, are silent", "look at the switch or the rack"
    ),
    "node_unfit": Meaning(
        "a node failed its checks", "repair it, then readmit it: `stoker readmit`"
    ),
    "rank_stopped": Meaning("a process is stopped (state T)", "look who sent SIGSTOP; continue it"),
    "no_progress": Meaning(
        "ranks live and make no step", "look at the ranks' stacks in the incident"
    ),
    "gpu_ecc": Meaning(
        "memory of a GPU is damaged: an error that ECC could not correct",
        "take the node out; reset the GPU, and replace it if that comes back",
    ),
    "gpu_lost": Meaning(
        "a GPU, or its firmware, no longer answers", "take the node out and power it off and on"
    ),
    "gpu_xid_other": Meaning(
        "a GPU's driver reports an error that the hardware or the program may have caused",
        "start again; take the node out if it comes back there",
    ),
    "nvlink_error": Meaning(
        "a link between GPUs, or their switch, failed",
        "take the node out; look at its NVLinks: `nvidia-smi nvlink -e`",
    ),
    "thermal_power": Meaning(
        "a GPU or its node is too hot, or has too little power",
        "look at cooling, power supplies and power caps of the node",
    ),
    "nccl_network": Meaning(
        "ranks lost the network between them", "look at the port, the cable and the switch named"
    ),
    "host_oom": Meaning(
        "a host ran out of memory, and the kernel ended a process",
        "use fewer data workers, or find what grows",
    ),
    "node_failure": Meaning(
        "a node is gone: its scheduler gave it up, or it rebooted or panicked",
        "take the node out and look why it went down",
    ),
    "host_hardware": Meaning(
        "hardware of a host other than GPUs broke: CPU, memory, PCIe, power, network card, a disk by its own report",
        "take the node out and have the named part replaced",
    ),
    "device_vanished": Meaning(
        "a device other than a GPU disappeared from a host: a network card, a disk",
        "take the node out; reseat or replace the device",
    ),
    "filesystem": Meaning(
        "a file system, a mount, its server or its controller failed, is full, or does not answer",
        "repair the storage, then start again",
    ),
    "nan_loss": Meaning(
        "the loss or the gradient is NaN or infinite",
        "go back before it; skip that data or lower the learning rate",
    ),
    "skipped_steps": Meaning(
        "step after step is skipped, since a gradient is not finite",
        "go back before it, or lower the learning rate",
    ),
    "loss_scale_floor": Meaning(
        "the loss scale fell to its floor: gradients overflow all the time",
        "go back before it; use bfloat16, or a lower learning rate",
    ),
    "loss_spike": Meaning(
        "the loss jumped", "wait some hundred steps; most spikes recover by themselves"
    ),
    "grad_norm_spike": Meaning("the gradient norm jumped", "watch the loss"),
    "grad_norm_drift": Meaning(
        "the gradient norm rises slowly, and the loss with it", "lower the learning rate"
    ),
    "divergence": Meaning(
        "the loss rose and does not come back", "go back before it with a lower learning rate"
    ),
    "validation_divergence": Meaning(
        "the validation loss rises while the training loss falls", "look for overfitting or a leak"
    ),
    "activation_norm_drift": Meaning("activations grow slowly", "look at norms and weight decay"),
    "plateau": Meaning(
        "the loss stopped falling at once", "look at the learning rate and the data"
    ),
    "resume_mismatch": Meaning(
        "the first steps after a restart are not those made before", "look at what was resumed"
    ),
    "throughput_drop": Meaning(
        "steps have become slower", "look for a slow node, a slow disk or throttled GPUs"
    ),
    "straggler": Meaning("one rank is slower than the others", "have its node checked"),
    "host_memory_growth": Meaning("a rank's memory grows all the time", "look for a leak"),
    "descriptor_growth": Meaning(
        "a rank opens more and more files", "look for files that are not closed"
    ),
    "folder_hangs": Meaning(
        "a file system of the run does not answer", "look at the file server or the mount"
    ),
    "replicas_disagree": Meaning(
        "copies of the weights that must be equal are not: a device computes wrongly",
        "go back before it on other hardware, and test the suspects",
    ),
    "decision_failed": Meaning("Stoker could not decide about an input", "report it to us"),
    "malformed_message": Meaning("Stoker received a message that it cannot read", "see its log"),
    "nccl_timeout": Meaning(
        "a collective waited for a rank that did not come, until its time ran out",
        "find the rank that came late: its own log, or its flight record",
    ),
    "cuda_oom": Meaning(
        "a GPU has not enough memory for the program",
        "use a smaller micro-batch, more ranks, or checkpointed activations",
    ),
    "cuda_illegal_access": Meaning(
        "a kernel on a GPU read or wrote memory that is not its own, or a check in it failed",
        "start again; the same place again is the program's fault, the same node again the GPU's",
    ),
    "data_error": Meaning(
        "training data is missing, damaged or of the wrong form", "repair or leave out that data"
    ),
    "checkpoint_io": Meaning(
        "a checkpoint could not be written or read", "look at its folder: room, rights, damage"
    ),
    "rendezvous": Meaning(
        "ranks could not meet at the start", "look at the address, the port and the missing nodes"
    ),
    "config_error": Meaning(
        "settings, code or packages are wrong: it fails the same way each time",
        "correct what the line names",
    ),
    "hang_no_error": Meaning(
        "ranks stopped making steps, and no line says why", "take the ranks' stacks: `py-spy dump`"
    ),
    "preemption": Meaning(
        "the scheduler or a person ended the job, its time was over, or the cloud took or had no node for it",
        "nothing is broken: start it again when there is room",
    ),
    "unknown": Meaning(
        "it failed, and no rule names the cause", "read the line and those above it"
    ),
    "rank_outlived_sigkill": Meaning(
        "a process does not end although it was killed: it hangs in a driver", "reboot the node"
    ),
}
