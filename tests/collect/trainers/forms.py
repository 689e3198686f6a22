"""Lines of trainers, as their own formatters print them: 40 healthy ones, then 19 with a NaN.

Each form renders sample `n` (from 0) of a run with NUM_PER_PASS samples an epoch, every tenth step logged, and says which step that
is. Where the formatter is installed here it is called; else the expression is that of the source that is named.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from tqdm import tqdm  # type: ignore[import-untyped]

NUM_HEALTHY, NUM_NAN = 40, 19
NUM_PER_PASS, STRIDE = 20, 10
# Steps of an epoch.
TOTAL = NUM_PER_PASS * STRIDE


def losses() -> list[float]:
    """Return the losses: a falling curve with a little noise, then NaN."""
    healthy = [2.0 + 1.5 * math.exp(-n / 15) + 0.02 * math.sin(7.0 * n) for n in range(NUM_HEALTHY)]
    return [round(loss, 3) for loss in healthy] + [math.nan] * NUM_NAN


@dataclass(frozen=True, slots=True)
class At:
    """One logged sample: its place in the run, and its loss."""

    n: int
    loss: float

    @property
    def step(self) -> int:
        """Steps done, counted over all epochs."""
        return (self.n + 1) * STRIDE

    @property
    def pass_number(self) -> int:
        """From 0."""
        return self.n // NUM_PER_PASS

    @property
    def index(self) -> int:
        """Steps done in the epoch."""
        return (self.n % NUM_PER_PASS + 1) * STRIDE


def bar(done: int, total: int, desc: str = "", postfix: str = "", form: str | None = None) -> str:
    """Draw a bar with tqdm's own formatter, as on a terminal of 120 columns."""
    drawn = tqdm.format_meter(
        done, total, 0.1 * done, ncols=120, prefix=desc, postfix=postfix, bar_format=form
    )
    return str(drawn)


def _lightning_number(value: float) -> str:
    # lightning 2.6.6, Tqdm.format_num.
    text = str(tqdm.format_num(value))
    if "e" not in text:
        text += "." if "." not in text and len(text) < 5 else ""
        text += "0" * (5 - len(text))
    return text


_LIGHTNING_BAR = (
    "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"
)
_BOLD, _OFF, _GREEN, _WHITE = "\x1b[1m", "\x1b[0m", "\33[32m", "\33[37m"


def _lightning(at: At) -> str:
    postfix = f"v_num=0, train_loss={_lightning_number(at.loss)}"
    return "\r" + bar(at.index, TOTAL, f"Epoch {at.pass_number}", postfix, _LIGHTNING_BAR)


def _keras(at: At) -> str:
    # keras 3.15.1, Progbar.update with verbose=1.
    header = f"\nEpoch {at.pass_number + 1}/3\n" if at.index == STRIDE else ""
    width = int(20 * at.index / TOTAL)
    drawn = f"{_GREEN}{'━' * width}{_OFF}{_WHITE}{'━' * (20 - width)}{_OFF}"
    info = f" {_BOLD}1s{_OFF} 2ms/step - accuracy: 0.8123 - loss: {at.loss:.4f}"
    return f"{header}{chr(8) * 60}\r{_BOLD}{at.index:3d}/{TOTAL}{_OFF} {drawn}{info}"


def _keras_by_pass(at: At) -> str:
    # keras 3.15.1, Progbar.update with verbose=2.
    return f"Epoch {at.n + 1}/59\n{TOTAL}/{TOTAL} - 4s - 2ms/step - accuracy: 0.9000 - loss: {at.loss:.4f} - val_loss: 2.1000\n"


def _imagenet(at: At) -> str:
    # pytorch/examples, imagenet/main.py: ProgressMeter.display, AverageMeter.__str__.
    meters = [
        f"Epoch: [{at.pass_number}][{at.index:3d}/{TOTAL}]",
        f"Time {0.5:6.3f} ({0.6:6.3f})",
        f"Data {0.0:6.3f} ({0.1:6.3f})",
        f"Loss {at.loss:.4e} ({at.loss:.4e})",
        f"Acc@1 {0.1:6.2f} ({0.2:6.2f})",
    ]
    return "\t".join(meters) + "\n"


def _timm(at: At) -> str:
    # timm's train.py, train_one_epoch.
    return (
        f"Train: {at.pass_number} [{at.index:>4d}/{TOTAL} ({100.0 * at.index / TOTAL:>3.0f}%)]  "
        f"Loss: {at.loss:#.3g} ({at.loss:#.3g})  Time: {0.5:.3f}s, {1024.0:>7.2f}/s  "
        f"({0.5:.3f}s, {1024.0:>7.2f}/s)  LR: {1e-5:.3e}  Data: {0.01:.3f} ({0.02:.3f})\n"
    )


def _mmengine(at: At) -> str:
    # mmengine 0.10.7, LogProcessor.get_log_after_iter, and MMFormatter.
    return (
        f"01/02 03:04:05 - mmengine - \x1b[4m\x1b[97mINFO\x1b[0m - Epoch(train)  [{at.pass_number + 1}]"
        f"[{str(at.index).rjust(3)}/{TOTAL}]  lr: {0.1:.4e}  eta: 0:10:11  time: {0.1:.4f}  "
        f"data_time: {0.1:.4f}  memory: 1000  loss: {at.loss:.4f}\n"
    )


def _fairseq2(at: At) -> str:
    # fairseq2 0.8.1, LogMetricRecorder.record_metric_values, within its logger's format.
    return (
        f"[2025-01-02 03:04:05,123][INFO] Train Metrics (step {at.step}) - NLL Loss: {at.loss:g} | "
        f"Gradient Norm: {1.25:g} | Learning Rate: {1e-4:g} | Elements per Second: {12000:,}/s\n"
    )


def _composer(at: At) -> str:
    # composer 0.32.1, ConsoleLogger.log_to_console, for a duration in epochs.
    return (
        f"[epoch={at.pass_number + 1}][batch={at.index}/{TOTAL}]:\n\t Train time/epoch: {at.pass_number}\n"
        f"\t Train loss/train/total: {at.loss:.4f}\n"
    )


def _composer_bar(at: At) -> str:
    # composer 0.32.1, ProgressBarLogger._build_pbar.
    desc = f"{'train':15}Epoch {at.pass_number:3}: "
    postfix = f"loss/train/total={at.loss:.4f}"
    return "\r" + bar(at.index, TOTAL, "", postfix, desc + " {l_bar}{bar:25}{r_bar}{bar:-1b}")


def _torchtitan(at: At) -> str:
    # torchtitan 0.3.0, MetricsProcessor.log.
    return (
        f"[titan] 2025-01-02 03:04:05,123 - root - INFO - \x1b[31mstep: {at.step:2}  "
        f"\x1b[32mloss: {at.loss:8.5f}  \x1b[38;2;180;60;0mgrad_norm: {1.5:7.4f}  "
        f"\x1b[36mmemory: {20.5:5.2f}GiB({25.9:.2f}%)  \x1b[34mtps: {3250:,}  "
        f"\x1b[35mtflops: {30.1:,.2f}  \x1b[33mmfu: {20.5:.2f}%\x1b[39m\n"
    )


def _deepspeed_pipeline(at: At) -> str:
    # deepspeed 0.19.8, PipelineEngine.train_batch.
    return f"steps: {at.step} loss: {at.loss:0.4f} iter time (s): {0.5:0.3f} samples/sec: {20.0:0.3f}\n"


def _megatron(at: At) -> str:
    # Megatron-LM, training_log.
    return (
        f" [2025-01-02 03:04:05] iteration {at.step:8d}/{5000:8d} | consumed samples: {at.step * 8:12d} | "
        f"elapsed time per iteration (ms): {1250.5:.1f} | learning rate: {1.2e-4:.6E} | "
        f"global batch size: {256:5d} | lm loss: {at.loss:.6E} | loss scale: {1.0:.1f} | "
        f"grad norm: {0.873:.3f} | number of skipped iterations: {0:3d} | number of nan iterations: {0:3d} |\n"
    )


def _huggingface(at: At) -> str:
    # transformers 5.23, ProgressCallback.on_log, with both streams in one file.
    logs = {"loss": at.loss, "grad_norm": 1.25, "learning_rate": 9.8e-4, "epoch": at.step / TOTAL}
    drawn = bar(at.step, 3 * TOTAL)
    return f"\r{drawn}\r{' ' * 80}\r{ {k: f'{v:.4g}' for k, v in logs.items()} }\n\r{drawn}"


def _ddp_tutorial(at: At) -> str:
    # pytorch/examples, distributed/ddp-tutorial-series, with the loss that people add.
    return f"[GPU0] Epoch {at.n} | Batchsize: 32 | Steps: 64\nEpoch {at.n} | Training loss: {at.loss}\n"


# Trainer -> how it prints a sample, and the step of that.
FORMS: dict[str, tuple[Callable[[At], str], Callable[[At], int]]] = {
    "huggingface": (_huggingface, lambda at: at.step),
    "lightning": (_lightning, lambda at: at.step),
    "keras": (_keras, lambda at: at.step),
    "keras, an epoch a line": (_keras_by_pass, lambda at: (at.n + 1) * TOTAL),
    "imagenet": (_imagenet, lambda at: at.step),
    "timm": (_timm, lambda at: at.step),
    "mmengine": (_mmengine, lambda at: at.step),
    "fairseq2": (_fairseq2, lambda at: at.step),
    "composer": (_composer, lambda at: at.step),
    "composer's bar": (_composer_bar, lambda at: at.step),
    "torchtitan": (_torchtitan, lambda at: at.step),
    "deepspeed": (_deepspeed_pipeline, lambda at: at.step),
    "megatron": (_megatron, lambda at: at.step),
    "ddp tutorial": (_ddp_tutorial, lambda at: at.n),
    # torchtune 0.6.1, full_finetune_distributed.
    "torchtune": (
        lambda at: "\r" + bar(at.index, TOTAL, f"{at.pass_number + 1}|{at.step}|Loss: {at.loss}"),
        lambda at: at.step,
    ),
    # pytorch/examples, mnist/main.py: samples, of a batch of 64.
    "mnist": (
        lambda at: (
            f"Train Epoch: {at.pass_number + 1} [{at.index * 64}/{TOTAL * 64} "
            f"({100.0 * at.index / TOTAL:.0f}%)]\tLoss: {at.loss:.6f}\n"
        ),
        lambda at: at.step * 64,
    ),
    # PyTorch's tutorial on CIFAR-10.
    "cifar10": (
        lambda at: f"[{at.pass_number + 1}, {at.index:5d}] loss: {at.loss:.3f}\n",
        lambda at: at.step,
    ),
    # PyTorch's tutorial on optimisation: the loss, then samples.
    "quickstart": (
        lambda at: (
            (f"Epoch {at.pass_number + 1}\n{'-' * 31}\n" if at.index == STRIDE else "")
            + f"loss: {at.loss:>7f}  [{at.index * 64:>5d}/{TOTAL * 64:>5d}]\n"
        ),
        lambda at: at.step * 64,
    ),
    # pytorch/vision, references: MetricLogger.log_every.
    "torchvision": (
        lambda at: (
            f"Epoch: [{at.pass_number}]  [{at.index:3d}/{TOTAL}]  eta: 0:01:00  lr: 0.100000  "
            f"loss: {at.loss:.4f} ({at.loss:.4f})  time: 0.3000  data: 0.1000  max mem: 1000\n"
        ),
        lambda at: at.step,
    ),
    "epoch of epochs": (
        lambda at: f"Epoch {at.n + 1}/59, Loss: {at.loss:.4f}\n",
        lambda at: at.n + 1,
    ),
    "epoch and step": (
        lambda at: (
            f"Epoch [{at.pass_number + 1}/3], Step [{at.index}/{TOTAL}], Loss: {at.loss:.4f}\n"
        ),
        lambda at: at.step,
    ),
    "index of total": (
        lambda at: f"[{at.index}/{TOTAL}] loss: {at.loss:.4f}\n",
        lambda at: at.step,
    ),
    "bar with postfix": (
        lambda at: (
            "\r" + bar(at.index, TOTAL, f"Epoch {at.pass_number + 1}/3", f"loss={at.loss:.3f}")
        ),
        lambda at: at.step,
    ),
    "bar with description": (
        lambda at: "\r" + bar(at.step, 3 * TOTAL, f"loss: {at.loss:.4f}"),
        lambda at: at.step,
    ),
    # nanoGPT's train.py.
    "nanogpt": (
        lambda at: f"iter {at.step}: loss {at.loss:.4f}, time {12.0:.2f}ms, mfu {3.0:.2f}%\n",
        lambda at: at.step,
    ),
    # llm.c's train_gpt2.cu.
    "llm.c": (
        lambda at: (
            f"step {at.step:4d}/{5000} | loss {at.loss:7.6f} ({1.0:+.2f}z)| norm {2.25:6.4f} ({0.5:+.2f}z)| "
            f"lr {2.8e-5:.2e} | {1875.5:.2f} ms | {48.5:.1f}% bf16 MFU | {279000:.0f} tok/s\n"
        ),
        lambda at: at.step,
    ),
    # fairseq, SimpleProgressBar and JsonProgressBar.
    "fairseq": (
        lambda at: (
            f"2025-01-02 03:04:05 | INFO | train_inner | epoch {at.pass_number + 1:03d}: {at.index:6d} / {TOTAL} "
            f"loss={at.loss}, nll_loss=6.5, ppl=90.5, wps=31000, num_updates={at.step}, lr=0.0004, gnorm=0.75\n"
        ),
        lambda at: at.step,
    ),
    # MaxText, metric_logger.
    "maxtext": (
        lambda at: (
            f"completed step: {at.step}, seconds: 3.250, TFLOP/s/device: 205.500, "
            f"Tokens/s/device: 12600.125, total_weights: 65536, loss: {at.loss:.3f}\n"
        ),
        lambda at: at.step,
    ),
    # clu.metric_writers, LoggingWriter.
    "flax with clu": (
        lambda at: (
            f"I0102 03:04:05.678901 140 logging_writer.py:48] [{at.step}] accuracy=0.5, loss={at.loss:f}\n"
        ),
        lambda at: at.step,
    ),
    # flax, examples/mnist/train.py.
    "flax": (
        lambda at: (
            f"epoch:{at.n + 1:3d}, train_loss: {at.loss:.4f}, train_accuracy: 92.61, "
            f"test_loss: {0.5:.4f}, test_accuracy: 98.00\n"
        ),
        lambda at: at.n + 1,
    ),
    # LLaMA-Factory, LogCallback: a dictionary of rounded numbers after the logger's prefix.
    "llama-factory": (
        lambda at: (
            f"[INFO|2025-01-02 03:04:05] llamafactory.train.callbacks:143 >> {{'loss': {at.loss:.4f}, "
            f"'learning_rate': 5.0000e-05, 'epoch': 0.10, 'throughput': 1200.50}}\n"
        ),
        lambda at: at.n + 1,
    ),
    # NeMo 2, ProgressPrinter.
    "nemo": (
        lambda at: (
            f"Training epoch {at.pass_number}, iteration {at.index - 1}/{TOTAL - 1} | lr: 3.6e-06 | "
            f"global_batch_size: 64 | global_step: {at.step - 1} | reduced_train_loss: {at.loss:.4g} | "
            f"train_step_timing in s: 1.75\n"
        ),
        lambda at: at.step - 1,
    ),
    # detectron2, CommonMetricPrinter.
    "detectron2": (
        lambda at: (
            f"[01/02 03:04:05 d2.utils.events]:  eta: 0:10:00  iter: {at.step}  total_loss: {at.loss:.4g}  "
            f"loss_cls: 1.2  time: 0.5000  data_time: 0.1000  lr: 0.0001  max_mem: 100M\n"
        ),
        lambda at: at.step,
    ),
}
