"""Causes that are injected into a small job, each with its label and its place: what a person on call would name."""

from typing import NamedTuple

# Methods of the job's trainer: before the first step, within one, and around them.
SETUP, STEPS, RESUME, WRITE = "setup", "run_steps", "resume", "write_out"

OF_TRANSFORMERS = frozenset(
    [
        *("load_model_of_hub", "save_model_of_hub", "bad_repository", "bad_model_config"),
        *("trainer_options", "trainer_of_hub", "words_of_hub", "trainer_resumes"),
    ]
)


class Injected(NamedTuple):
    """One failing function of the job. `when`: the method that calls it."""

    label: str
    module: str
    function: str
    when: str
    # Another answer that an operator would take.
    accepted: str = ""

    @property
    def name(self) -> str:
        """Its name in tables."""
        return f"{self.module}.{self.function}"

    @property
    def needs_transformers(self) -> bool:
        """Whether it imports Transformers, which takes longer than all others together."""
        return self.function in OF_TRANSFORMERS


def _all(
    label: str, module: str, when: str, functions: str, *, accepted: str = ""
) -> list[Injected]:
    return [Injected(label, module, name, when, accepted) for name in functions.split()]


INJECTED = (
    *_all(
        "data_error",
        "corpus",
        STEPS,
        "from_json from_array from_mapped from_image from_text from_gzip from_cut_gzip from_zlib from_tar from_zip from_struct "
        "from_pickle from_csv read_missing value in_worker in_worker_json index none length uneven joined records cached in_pool "
        "in_executor wrapped streamed",
    ),
    *_all(
        "checkpoint_io",
        "persist",
        RESUME,
        "cut junk tensors absent absent_folder restore_progress restore_generators load_part verify_checkpoint "
        "load_sharded load_model_of_hub",
    ),
    *_all(
        "checkpoint_io",
        "persist",
        WRITE,
        "full save_over_file save_sharded save_in_thread save_model_of_hub",
    ),
    # torch suggests a setting for bytes that are no checkpoint.
    *_all("checkpoint_io", "persist", RESUME, "junk_safe", accepted="config_error"),
    # The storage failed while a checkpoint was written.
    *_all(
        "checkpoint_io",
        "persist",
        WRITE,
        "full_file stale broken_disk save_shards",
        accepted="filesystem",
    ),
    *_all(
        "config_error",
        "zoo",
        SETUP,
        "missing_module missing_name bad_syntax needed arguments schema yaml_text toml_text ini_text recipe_key fields namespace "
        "undefined unexpected heads rate no_parameters precision unfinished other_model layout no_environment no_recipe "
        "bad_repository bad_model_config schedule depth",
    ),
    *_all("config_error", "zoo", STEPS, "shapes no_router"),
    *_all("filesystem", "zoo", STEPS, "store_of_metrics listing disk"),
    *_all("filesystem", "zoo", SETUP, "scratch"),
    *_all("host_oom", "zoo", STEPS, "array_memory tensor_memory host_memory"),
    *_all("cuda_oom", "zoo", STEPS, "gpu_memory"),
    *_all("cuda_illegal_access", "zoo", STEPS, "gpu_address"),
    *_all("rendezvous", "zoo", SETUP, "store init_timeout resolve reach_head"),
    *_all("nan_loss", "zoo", STEPS, "loss_check loss_assert overflow anomaly"),
    # A program whose names say little.
    *_all(
        "data_error",
        "feed",
        STEPS,
        "mixed_types mixed_types_in_child short_buffer lost_file exhausted trainer_of_hub",
    ),
    *_all("data_error", "feed", STEPS, "words_of_hub", accepted="unknown"),
    *_all("filesystem", "feed", STEPS, "bad_disk", accepted="data_error"),
    *_all("host_oom", "feed", STEPS, "hungry"),
    *_all("data_error", "feed", STEPS, "killed", accepted="unknown"),
    *_all("config_error", "feed", SETUP, "bad_options sampler distributed trainer_options"),
    *_all("checkpoint_io", "feed", SETUP, "trainer_resumes", accepted="config_error"),
    *_all("config_error", "work", SETUP, "variable number betas other_groups device backend"),
    *_all(
        "config_error",
        "work",
        SETUP,
        "dtype twice in_place no_gradient no_group exists not_picklable compiled script version",
    ),
    *_all("data_error", "work", STEPS, "too_big_index"),
    *_all("checkpoint_io", "work", WRITE, "unwritable", accepted="config_error"),
    *_all("filesystem", "work", WRITE, "write_full copy_full", accepted="checkpoint_io"),
    *_all("unknown", "work", STEPS, "child_failed threads"),
    *_all("nan_loss", "work", STEPS, "clip"),
    *_all("rendezvous", "work", SETUP, "late_store", accepted="nccl_timeout"),
    *_all("healthy", "zoo", STEPS, "halt"),
    *_all("unknown", "zoo", STEPS, "odd_state"),
)
