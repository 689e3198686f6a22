"""Checks of numbers that end a program: what is not finite in what it encodes, samples, or decomposes."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_numbers = partial(Signature, fault="nan_loss", layer="program", scope="rank")

NUMBERS = (
    _numbers(
        "numbers-not-finite",
        r"\bN[aA]Ns? (?:was |were |is |are )?(?:detected|found|encountered|appeared) in (?:the )?(?:latents?|samples?|features?"
        r"|images?"
        r"|embeddings?|hidden[_ ]states?|policy|actions?|rewards?|advantages?|states?|model|state_dict)\b"
        r"|input matrix contained non-finite values|array must not contain infs or NaNs"
        r"|\bModel diverged with loss = N|\bLoss became infinite or NaN|\bNaN or Inf found in input tensor"
        r"|Tensor had (?:NaN|Inf)\b|[Ff]ound (?:NaN|Inf|nan|inf)(?:/(?:NaN|Inf|nan|inf))? in (?:the )?(?:model|optimizer|master"
        r"|policy)"
        r"|\b(?:probability tensor|logits|probs) contains? (?:either )?.{0,8}(?:inf|nan)"
        r"|\bbut found invalid values:[ \t\r]*(?:tensor\(\[+ *nan|$)"
        r"|\bthe loss (?:is|was) NaN\b|NaN or Inf detected in (?:the )?(?:loss|grad\w*|forward|backward|output)"
        r"|\bDetected (?:nan|inf|NaN|Inf)(?:/(?:nan|inf|NaN|Inf))? (?:loss|grad\w*|value)",
        source="torch.linalg and torch.distributions, SciPy, TensorFlow, Detectron2, trainers of diffusion models",
        sample="RuntimeError: NaN detected in latents: /data/lora/img/10_a/0041.png",
        near="NaN detection in latents is on",
    ),
    Signature(
        "printed-not-finite",
        # Arrays of the losses of several devices, and tensors that a script prints.
        r"\b[Ll]oss(?:es)?\W{1,4}\[[^\]a-zA-Z]{0,200}\b[Nn]a[Nn]\b|^ *tensor\((?:nan|inf|-inf)\b[^\n]{0,60}\) *$",
        fault="nan_loss",
        layer="metrics",
        scope="rank",
        source="PaddlePaddle's and other scripts, which print the losses of all devices; PyTorch, how it prints a tensor",
        sample="Pass 0, batch 500, loss [     nan 9.211133      nan      nan ]",
        near="Pass 0, batch 400, loss [9.351679 9.2102585 9.151485 9.107157]",
    ),
)
