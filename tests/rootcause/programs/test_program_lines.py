"""Lines of programs and their libraries: the fault that each names, and lines of the same words that name none."""

import pytest

from tests.collect.diagnosed_logs import verdicts_of

STEPS = "step 10 loss 3.11\nstep 20 loss 3.02\n"
SICK = [
    # ---- memory
    ("cuda_oom", "F0812 10:19:02.3 9912 syncedmem.cpp:71] Check failed: error == cudaSuccess (2 vs. 0)  out of memory"),
    ("cuda_oom", "RuntimeError: Device(id:0) memory isn't enough and alloc failed, kernel name: Default/Adam."),
    ("cuda_oom", "ERROR: LoadError: Out of GPU memory trying to allocate 1.953 GiB"),
    ("cuda_oom", "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes"),
    ("host_oom", "fatal error: runtime: out of memory"),
    ("host_oom", "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory"),
    ("host_oom", "Error: cannot allocate vector of size 29.8 Gb"),
    ("host_oom", "ERROR: LoadError: OutOfMemoryError()"),
    # ---- data
    ("data_error", "F0812 10:18:02.3 9912 db_lmdb.hpp:15] Check failed: mdb_status == 0 (2 vs. 0) No such file or directory"),
    ("data_error", "xgboost.core.XGBoostError: [10:44:11] SoftmaxMultiClassObj: label must be in [0, num_class)."),
    ("data_error", "InvalidArgumentError: indices[3,511] = 30522 is not in [0, 30522)"),
    ("data_error", "[LightGBM] [Fatal] Data file /sets/higgs.libsvm doesn't exist."),
    ("data_error", "org.apache.spark.sql.AnalysisException: Path does not exist: hdfs://nn1/cc/2022-40"),
    ("data_error", "RuntimeError: ERROR No valid images found in /sets/images/train"),
    ("data_error", "ValueError: Dataset is empty"),
    ("data_error", "2023/10/02 11:21:01 loader: open /data/shards/part-00081.bin: no such file or directory\nexit status 1"),
    ("data_error", "[2023-01-01 10:00:00] Error: Parallel corpus files have different number of lines: a.en and a.de"),
    ("data_error", "ValueError: Sample 0 has label length 41 longer than input length 32 for CTC"),
    # ---- checkpoints
    ("checkpoint_io", "ERROR: tensor 'blk.0' data is not within the file bounds, model is corrupted or incomplete"),
    ("checkpoint_io", "Error: Error while deserializing header: header too large"),
    ("checkpoint_io", "gguf_init_from_file: invalid magic characters '<htm'"),
    ("checkpoint_io", 'ValueError: DATA_LOSS: Error reading "params/.zarray" in OCDBT database at gs://b/120/: Checksum mismatch'),
    # ---- settings
    ("config_error", "Cannot find primary config 'confg'. Check that it's in your config search path."),
    ("config_error", "tune run: error: Recipe lora_finetune_distibuted not found. See `tune ls` for available recipes."),
    ("config_error", "Error: Missing option '--data-dir'."),
    ("config_error", "error: unexpected argument '--learning-rat' found"),
    ("config_error", "nvcc fatal   : Unsupported gpu architecture 'compute_89'"),
    ("config_error", "ERROR: No matching distribution found for torch==9.9.9"),
    ("config_error", 'Exception in thread "main" java.lang.NoClassDefFoundError: org/nd4j/linalg/factory/Nd4j'),
    ("config_error", "ERROR: license check failed: FlexNet Licensing error:-5,357 No such feature exists."),
    ("config_error", "2024/01/01 10:00:00 config: yaml: line 12: mapping values are not allowed in this context"),
    ("config_error", "fatal: Authentication failed for 'https://huggingface.co/x/y/'"),
    # ---- numbers
    ("nan_loss", "RuntimeError: NaN detected in latents: /sets/10_a/0041.png"),
    ("nan_loss", "torch._C._LinAlgError: linalg.svd: failed to converge: the input matrix contained non-finite values."),
]  # fmt: skip
HEALTHY = [
    "tests/test_oom.py::test_cuda_out_of_memory XFAIL (CUDA out of memory expected) [ 12%]",
    "tests/test_numbers.py::test_nan_raises[FloatingPointError: loss is nan] PASSED",
    "test checkpoint::tests::header_too_large_is_an_error ... ok",
    "  --on-nan MODE         what to do if loss is nan: raise FloatingPointError, or stop training",
    "WARNING scheduler.py:1057] Sequence group 42 is preempted by PreemptionMode.RECOMPUTE mode",
    "23/06/12 10:11:12 WARN TaskSetManager: Lost task 12.0 in stage 4.0 (TID 881): Connection reset by peer",
    "WARNING: cannot identify image file '/sets/12.png', skipped",
    "WARNING: no samples found in /sets/zh, language skipped",
    "INFO  no documents left in queue; prefetcher idle",
    "ls: cannot access '/data/cache/x.idx': No such file or directory\nthe index is built",
    "DEBUG resolver: no such file or directory: ./data/override.json (optional)\nINFO start",
    "java -XX:+HeapDumpOnOutOfMemoryError -jar prep.jar",
    "12 files: 0 failed to decode audio, 0 missing",
    "Building extension module fused_adam...\nninja: no work to do.",
    "checkpoint not found at /ckpt/run7, starting from scratch",
    "No checkpoint found at '/ckpt/run7'; training from scratch.",
    "=> no checkpoint found at '/ckpt/run7/model.pth'; a fresh run",
    "/data/tok/train.idx not found, building it",
    "INFO both corpora have no different number of samples; no model file is truncated",
    "Found 0 NaN in model weights, 0 Inf in optimizer state",
]


@pytest.mark.parametrize(("fault", "line"), SICK)
def test_a_program_says_what_it_failed_of(fault: str, line: str) -> None:
    """Alone, and at the end of a run that made steps; what a run survives is no incident."""
    assert [one.cause.fault for one in verdicts_of(f"{line}\n")][:1] == [fault]
    assert [one.cause.fault for one in verdicts_of(f"{STEPS}{line}\n")][:1] == [fault]


@pytest.mark.parametrize("line", HEALTHY)
def test_words_of_failures_in_lines_that_report_none(line: str) -> None:
    """Reports of tests, help texts, what is tried again, counts of 0, and what scripts do without."""
    assert verdicts_of(f"{line}\n") == []
    assert verdicts_of(f"{line}\n{STEPS}") == []
