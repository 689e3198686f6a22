"""Arguments, configurations, packages and compilers that cannot work: they fail the same way each time."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_config = partial(Signature, fault="config_error", layer="program", scope="user", is_lasting=True)

SETTINGS = (
    _config(
        "arguments-refused",
        # argparse's, behind the name of a script or a launcher.
        r"\.py(?: [\w-]{1,40})?: error: |\btune run: error: |: error: (?:unrecognized arguments: |ambiguous option: |argument \S"
        r"|invalid choice: "
        r"|one of the"
        r" arguments |the following arguments are required)"
        # absl, gflags, click, clap, cobra, Go's flag, getopt, picocli, jsonargparse.
        r"|Flags parsing error: |unknown command line flag '|^Error: (?:Missing (?:option|argument|parameter|command)"
        r"|No such (?:option"
        r"|command)|Invalid value(?: for)?[: ]|Got unexpected extra argument|Option '[^']{1,80}' requires|unknown (?:flag|command"
        r"|shorthand flag)|required flag\(s\))|│ (?:Invalid value for|Missing (?:option|argument|parameter)|No such (?:option"
        r"|command)"
        r"|Got unexpected extra argument)"
        r"|^error: (?:unexpected argument '|the following required arguments were not|invalid value '|unrecognized subcommand '"
        r"|the argument '[^']{1,80}' cannot be used with|Found argument '|a value is required for)"
        r"|flag provided but not defined: -|\boption requires an argument -- |\binvalid option -- '"
        r"|^Unknown options?: '?--?\w|error: (?:Parser key \"|Key \"[^\"]{1,120}\" is required|Configuration check failed)",
        source="argparse, absl, gflags, click, typer, clap, cobra, Go's flag, getopt, picocli, jsonargparse",
        sample="FATAL Flags parsing error: Unknown command line flag 'learning_rte'. Did you mean: learning_rate ?",
        near="flags were parsed without an error: learning_rate",
    ),
    _config(
        "configuration-refused",
        # Hydra, OmegaConf, gin, ml_collections, Confection, Fiddle, pydantic; registries of OpenMMLab and Detectron2.
        r"Could not override '|Cannot find primary config|Could not (?:find|load) '\S{1,120}'?.{0,20}Available options"
        r"|You must specify '[^']{1,80}', e\.g|Error merging override|Error in call to target '|Error locating target '"
        r"|Missing mandatory value: |No configurable matching '|Unable to (?:find|open) (?:the )?config(?:uration)? file"
        r"|\byaml: (?:line \d+: |unmarshal errors|control characters)|\bTOML parse error at line|\btoml: line \d"
        r"|\bjson: (?:unknown field|cannot unmarshal) "
        r"|Error parsing text-format |Failed to parse (?:Solver|Net)Parameter file: \S{1,200}\.prototxt|Unknown (?:layer type"
        r"|bottom blob)"
        r"|\d+ validation errors? for \w|is not registered! Available|is not in the \S{1,80} registry|Unknown config option: "
        r"|Cannot use GPU (?:in CPU-only|because you have installed CPU version)|Compile with USE_CUDA=1|is not implemented for GPU"
        r"|Shape inconsistent, Provided|infer_shape error|DimensionMismatch\b|DNN library initialization failed"
        r"|\b40[13] Client Error: \S{1,40} for url: |\b404 Client Error: [\w ]{1,40} for url: https?://huggingface\.co"
        r"|An error occurred \((?:AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken|NoSuchBucket"
        r"|UnrecognizedClientException|InvalidClientTokenId|UnauthorizedOperation|AuthFailure)\)"
        r"|\bThe requested URL returned error: 40[13]|\bthe requested URL returned error: 40[13]|fatal: Authentication failed for '"
        r"|fatal: could not read Username for '"
        r"|Couldn't instantiate the backend tokenizer"
        r"|Loaded runtime CuDNN library: .{1,60} but source was compiled with",
        source="Hydra, OmegaConf, gin, Hugging Face's hub, protobuf's text format, pydantic, OpenMMLab, MXNet, Caffe, Paddle, XLA",
        sample="Cannot find primary config 'confg'. Check that it's in your config search path.",
        near="the primary config was found in the search path",
    ),
    _config(
        "not-compiled",
        r"Error building extension '|Error compiling objects for extension|nvcc (?:fatal|error) +: "
        r"|\bninja: (?:error|fatal): |\bninja: build stopped: "
        r"|collect2: error: ld"
        r"|undefined reference to `|: fatal error: \S{1,160}: No such file or directory|\berror: command '?\S{1,200}' failed"
        r"|CMake Error(?: at|:)|Failed to find C compiler|Internal Triton PTX codegen error|ptxas returned an error"
        r"|libdevice not found at|Feature '[^']{1,60}' requires \.target|\bCppCompileError: |unsupported gpu architecture"
        r"|Unable to JIT load the \w+ op|\bMODULEFILE ERROR\b|\bld returned \d exit status"
        r"|error: (?:could not compile `|linker `[^`]{1,60}` (?:not found|failed))|\bmake: \*\*\* No rule to make target",
        source="torch's builder of extensions, nvcc, ninja, GNU ld, gcc, CMake, Triton, XLA, DeepSpeed, cargo, make",
        sample="RuntimeError: Error building extension 'fused_adam'",
        near="building extension module fused_adam...",
    ),
    _config(
        "packages-missing",
        # pip, conda, Lmod, Java, Julia, R, Lua, Perl, Go, licences.
        r"ERROR: (?:No matching distribution|Could not find a version that satisfies|Failed building wheel|Could not build wheels"
        r"|Cannot install |Could not open requirements file|ResolutionImpossible)|\b(?:PackagesNotFoundError|ResolvePackageNotFound"
        r"|EnvironmentLocationNotFound|UnsatisfiableError): "
        r"|Lmod has detected the following error|Unable to locate a modulefile for|ERROR: Module \S{1,80} cannot be"
        r"|\b(?:java\.lang\.)?(?:NoClassDefFoundError|ClassNotFoundException|UnsupportedClassVersionError|UnsatisfiedLinkError"
        r"|NoSuchMethodError): |Error: (?:Could not find or load main class|Unable to access jarfile)"
        r"|ArgumentError: Package \S{1,80} (?:\[\w+\] )?(?:not found|is required)|UndefVarError: |MethodError: no method matching"
        r"|there is no package called |could not find function \"|module '[\w./-]{1,120}' not found:"
        r"|Can't locate \S{1,120}\.pm in @INC"
        r"|Undefined function or variable '|License checkout failed|FlexNet Licensing error|Licensing error:-\d"
        r"|[Ll]icen[sc]e (?:check|checkout|validation|verification) (?:failed|error)|[Ll]icen[sc]e (?:file )?(?:has "
        r"|is )?(?:expired|not found)"
        r"|attempt to (?:index|call|compare|concatenate|perform arithmetic on) (?:local|global|field|upvalue|method|a nil|two)",
        source="pip, conda, Lmod, Java, Julia, R, Lua, Perl, FlexNet",
        sample="ERROR: No matching distribution found for flash-attn==9.9.9",
        near="a matching distribution was found for flash-attn==2.5.8",
    ),
)
