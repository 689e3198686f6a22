"""Programs that train nothing, by which the ranks of a job are distinguished from what starts them."""

# Shells, and what they run other programs with.
SHELLS = (
    "sh bash dash zsh ksh fish busybox env sudo su nice ionice chrt taskset numactl timeout "
    "time stdbuf script setsid nohup make xargs parallel watch entr tmux screen tini dumb-init "
    "catatonit docker-init conda mamba uv poetry pixi apptainer singularity"
)
# Launchers, by their programs and by their modules.
LAUNCHERS = (
    "srun sbatch slurmstepd mpirun mpiexec mpiexec.hydra orterun prterun prted orted "
    "hydra_pmi_proxy torchrun accelerate deepspeed torch.distributed.run "
    "torch.distributed.launch accelerate.commands.launch deepspeed.launcher.launch "
    "deepspeed.launcher.runner"
)
# What scripts call between two starts of a job.
HELPERS = (
    "sleep wait true false tee cat date echo printf cp mv rm mkdir ls ln touch rsync scp ssh "
    "grep sed awk head tail find tar gzip git curl wget df du free ps pkill kill nvidia-smi "
    "rocm-smi dmesg logger"
)
NO_RANKS_THEMSELVES = frozenset(f"{SHELLS} {LAUNCHERS} {HELPERS}".split())
