"""Files of weights and states that could not be read or written, in the words of their formats."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_checkpoint = partial(Signature, fault="checkpoint_io", layer="program", scope="storage")

CHECKPOINTS = (
    _checkpoint(
        "weights-not-read",
        # safetensors, ONNX, GGUF, OCDBT of Orbax, Torch in Lua, Caffe, MindSpore, Keras.
        r"[Ee]rror while deserializing header|\b(?:InvalidHeader(?:Length|Start|Deserialization)?|HeaderTooSmall"
        r"|TensorInvalidInfo)\b"
        r"|INVALID_PROTOBUF : Load model|Load model from \S{1,300} failed|gguf_init_from_file\w*: (?:invalid magic|failed)"
        r"|\berror loading model: |in OCDBT database|ocdbt\b.{0,60}\b(?:Error reading|corrupt\w*|[Cc]hecksum)"
        r"|read error: read \d+ (?:blocks|bytes) instead of|unknown Torch class <"
        r"|File not found: \S{1,300}\.(?:caffemodel|solverstate)|Failed to parse NetParameter file: \S{1,300}\.caffemodel"
        r"|checkpoint file\b.{0,200}\b(?:may be damaged|has been corrupted|crc check failed)|Failed to read the checkpoint file"
        r"|FileNotFoundError: Checkpoint at \S{1,300} not found"
        r"|Error: Destination \S{1,300} already exists\."
        r"|: (?:[Tt]he |[Yy]our )?(?:[Mm]odel|[Ww]eights) (?:file )?(?:is|are|appears?|seems?)(?: to be)?"
        r" (?:corrupt(?:ed)?|truncated)"
        r"|not within the file bounds, model"
        r"|\.bin has wrong file format"
        r"|not an HDF5 weights? file|Unable to (?:synchronously )?(?:create|write) (?:file|dataset) \(",
        source="safetensors, ONNX Runtime, llama.cpp, TensorStore, Torch, Caffe, MindSpore, Orbax, HDF5",
        sample="Error: Error while deserializing header: header too large",
        near="the header was deserialized in 3 ms",
    ),
    _checkpoint(
        "weights-not-written",
        r"\bwrite error: wrote \d+ blocks instead of \d+|\bfile is too short to be an sstable\b"
        r"|\bnot an sstable \(bad magic number\)",
        source="Lua Torch, File.lua; TensorFlow, tables of checkpoints",
        sample="File.lua:210: write error: wrote 9367499 blocks instead of 31014000 at /ho",
        near="File.lua:210: wrote 31014000 blocks",
    ),
)
