"""Training data that are missing, damaged, or not of the form or the range that their reader demands."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_data = partial(Signature, fault="data_error", layer="program", scope="user", is_lasting=True)

DATA = (
    _data(
        "data-tables-broken",
        # Kaldi, util/kaldi-table-inl.h and base/io-funcs.cc.
        r"TableReader: (?:failed to|error reading|reading|bad or unopenable|Scp file)|\): Expected token \"<"
        r"|Expected token \"<\w+>\", got"
        r"|Failed to read (?:vector|matrix|archive)\b|WaveData: |WaveInfo: |Error constructing TableReader: rspecifier"
        # Riegeli and ArrayRecord, RecordIO, LMDB, HDF5, Arrow, Parquet, ORC, Avro, FFCV, NIfTI.
        r"|Riegeli/records|[Ii]nvalid (?:chunk|record) header|Invalid RecordIO|kMagic Invalid|mdb_status == 0"
        r"|Unable to (?:synchronously )?open object \(object '"
        r"|is not a Parquet file|not found in footer|Couldn't deserialize thrift|Not an ORC file|Not an Avro data file"
        r"|\bRecord index -?\d+ out of range|Malformed records are detected"
        # Streams: zstd's, tar's.
        r"|zstd(?:_decompress|andard)?\b.{0,40}: (?:Data corruption detected|Unknown frame descriptor|Src size is incorrect)"
        r"|\bgzip: \S{1,200}: (?:not in gzip format|invalid compressed data|unexpected end of file)"
        r"|\btar: Unexpected EOF in archive",
        source="Kaldi, Riegeli, RecordIO, LMDB, HDF5, Parquet, ORC, Avro, zstd, gzip, tar",
        sample="ERROR (compute-mfcc-feats:OfflineFeatureTpl():util/kaldi-table-inl.h:113) TableReader: failed to open file /a.wav",
        near="LOG (compute-mfcc-feats[5.5]:main():compute-mfcc-feats.cc:208) TableReader read 2620 wave files, 0 failed",
    ),
    _data(
        "media-not-decoded",
        # TensorFlow, DALI, lhotse, sox, libsndfile, torchaudio, OpenCV, Pillow, FFmpeg, decord, nvJPEG.
        r"Unknown image file format\. One of|Expected image \(JPEG|Invalid (?:JPEG|PNG|GIF|BMP) data|\bInput is empty\."
        r"|Unrecognized image format"
        r"|Error when executing \w+ [Oo]perator \S*(?:[Dd]ecode|[Rr]eader)|AudioLoadingError|DurationMismatchError|AudioDecodeError"
        r"|formats: (?:can't|no handler for)|LibsndfileError|Format not recognised|File contains data in an unknown format"
        r"|Error loading audio file: failed to|Failed to (?:decode|load|open|read) (?:audio|image|video|frames?|sample)\b"
        r"|cannot identify image file|image file is truncated|broken data stream when reading image file|cannot find video stream"
        r"|\bInvalid data found when processing input|moov atom not found|NVJPEG_STATUS_(?:BAD|JPEG)_|nvJPEG error"
        r"|Decode: image decode",
        source="TensorFlow, DALI, lhotse, sox, libsndfile, torchaudio, Pillow, FFmpeg, decord, nvJPEG, MindSpore",
        sample="tensorflow.python.framework.errors_impl.InvalidArgumentError: Unknown image file format. One of JPEG, PNG.",
        near="image files of the formats JPEG, PNG, GIF and BMP are read",
    ),
    _data(
        "labels-out-of-range",
        r"Received a label value of -?\d|\b[Ll]abels? must be in \[0, ?num_class|SoftmaxMultiClassObj: label|Label should be in \[0"
        r"|\bindices\[[\d,]*\] = -?\d+ is not in \[|The value of label expected|[Tt]arget -?\d+ is out of bounds"
        r"|A valid category_id must be in \[0|[Ll]abel class \d+ exceeds|[Ll]abel set is empty|label must be"
        r" (?:with)?in \[0"
        r"|Invalid (?:class|classes) inferred from unique values|\bcategory_id \d+ (?:is )?not (?:found )?in\b"
        r"|[Tt]oken ids? \d+ (?:is |are )?(?:>=|out of range|outside|exceeds|larger than) ",
        source="TensorFlow, xgboost, LightGBM, Paddle, torch, Detectron2, Ultralytics",
        sample="InvalidArgumentError: Received a label value of 1000 which is outside the valid range of [0, 1000).",
        near="label values are in the valid range of [0, 1000)",
    ),
    _data(
        "data-of-wrong-form",
        # TensorFlow's examples, Spark, LightGBM, csv, pandas, datasets, MindSpore, sentence files.
        r"Could not parse example input|\(data type: \w+\) is required but could not be found|Can't parse serialized Example"
        r"|Data types don't match\. (?:Data|Expected)"
        r"|AnalysisException: Path does not exist|InvalidInputException: Input path does not exist"
        r"|\[Fatal\] (?:Data file|Unknown format of training data|Could not open data file|Input format error"
        r"|Cannot construct Dataset)"
        r"|Exception thrown from dataset pipeline|Dataset Pipeline Error Message|Error tokenizing data"
        r"|line contains NUL\b|_csv\.Error: |field larger than field limit|All the data files must have the same columns"
        r"|An error occurred while generating the dataset|Mismatch in the number of (?:source and target|lines)"
        r"|(?:[Ss]ource|[Tt]arget|src|tgt) and (?:[Ss]ource|[Tt]arget|src|tgt) (?:files? )?(?:have|must have|do not have|differ in)"
        r" (?:the same |different |a different )?(?:number|numbers) of"
        r"|\b(?:different|unequal|mismatched) numbers? of (?:lines|sentences|segments)\b"
        r"|Not enough time for target transition sequence"
        r"|\blabel length \d+ longer than input|\b[Ii]nput length \d+ (?:is )?(?:shorter|smaller) than (?:the )?(?:target|label)"
        r"|invalid since max_positions=|EOF while parsing a (?:string|value|list|object)|stream did not contain valid UTF-8"
        r"|invalid utf-8 sequence of",
        source="TensorFlow, Spark, LightGBM, MindSpore, pandas, datasets, fairseq, serde",
        sample="RuntimeError: Exception thrown from dataset pipeline. Refer to 'Dataset Pipeline Error Message'.",
        near="no exception was thrown from the pipeline of datasets",
    ),
    _data(
        "no-data-found",
        r"Dataset not found: |No data found\. Please verify|\bDataset '[^']{1,200}' (?:images|error|not found)"
        r"|\b[Nn]o (?:valid |usable |training |labell?ed )?(?:samples?|examples?|images?|shards?|utterances?|records?"
        r"|documents?|sentences|labels|annotations?|data files|training data|training samples) (?:were |was |have been "
        r"|are )?(?:found"
        r"|matched|available|left after|remain(?:ing)? after)\b(?: (?:in|at|under|for|from|matching|with) [\"'(/.\w]"
        r"|[.!]?[ \t\r]*$)"
        r"|(?:set|SET|orpus|anifest|data|oader|train_ds)(?: \S{1,60})? (?:is|was) empty(?:[.!,;:]|[ \t\r]*$)"
        r"|\b(?:[Ll]ength|[Ss]ize) of (?:the )?(?:train(?:ing)? )?dataset is 0\b|\bDataset has (?:0|zero|no) (?:samples"
        r"|examples|items|rows)\b"
        r"|[Zz]ero[- ]length dataset|but the Sequence has length 0\b|must contain at least one (?:sample|example|shard|document)",
        source="words of fairseq, kohya's scripts, Ultralytics, NeMo, ESPnet and loaders of others for data that are not there",
        sample="ERROR    No data found. Please verify arguments (train_data_dir must be the parent of folders with images)",
        near="no data found in the cache is older than a day",
    ),
    _data(
        "input-not-decoded",
        r"\bOP_REQUIRES failed at (?:decode_\w+|parse_\w+|example_\w*parsing\w*|whole_file_read_ops|tf_record_\w+"
        r"|record_\w+)\.cc:\d+"
        r"|\btruncated record at \d+\b",
        source="TensorFlow, kernels that read and decode input",
        sample="OP_REQUIRES failed at decode_wav_op.cc:55 : Invalid argument: WAV data chunk is too large",
        near="OP_REQUIRES failed at conv_ops.cc:1115 : Not found: No algorithm worked!",
    ),
)
