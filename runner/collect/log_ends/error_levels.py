"""Error levels: how emitters mark a line as an error, and what the lines of a stack below it look like.

Exceptions of Python are read as such, with their tracebacks; what each error means is judged elsewhere.
"""

import re

# Not a number that is called an error: "Error: 0.031", "ERROR 12 %", "Error rate ...", "Error bars".
_IS_METRIC = (
    r"(?!s? ?(?:rate|bars?|margin|handl\w*|log\w*|levels?|analysis|count\w*|correct\w*|free|functions?|metrics?|tolerance|threshold"
    r"|reporting|propagat\w*|model|files?:|estimat\w*|distribution|terms?|signal|weight\w*|feedback|std|mean|min|max|per|vs|%)\b)"
    r"(?![^\n]{0,80}?[:=(\s]{1,3}[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s*%?\)?\s*$)(?!s?\b[\s:=]*[-+]?\.?\d)"
)
_NAMES = r"ERROR|FATAL|CRITICAL|SEVERE|PANIC|EMERG|ALERT|CRIT"
LEVEL = re.compile(
    rf"(?:^|[\s\[(|<:*!])(?:{_NAMES}|[Ff]atal [Ee]rror)(?=[\s\])|>:,!*]|$)"
    # A channel in front: train.ERROR.
    rf"|^(?:\S+ ){{0,3}}[\w.\-]+\.(?:{_NAMES}): "
    # In small letters between brackets: spdlog, structlog, tslog, syslog of macOS.
    r"|(?:^|[\s\]])(?:\[\s{0,8}(?:error|err|fatal|critical|crit|panic|severe|emerg|alert)\s{0,8}\]"
    r"|<(?:[Ee]rror|[Ff]atal|[Ff]ault|[Cc]ritical)>)(?=[\s:\[]|$)"
    # glog's and torch's; NCCL's only level for errors, in which its proxies also write what they see of peers that are done,
    # and the functions that a code other than 0 comes back through.
    r"|(?:^|\[)[EF]\d{4} \d\d:|\[[EF] [\w./-]+:\d+\]|\b[NR]CCL WARN\b(?! ?\[(?:Service thread|Proxy)|.{0,60}\bopen lib)"
    r"|\b[NR]CCL INFO \S+\.cc:\d+(?::\w+)? -> [1-9]\b(?! ?\[(?:Service thread|Proxy))"
    r"|^(?:[\w./-]+: )?(?:fatal|error|panic|FATAL|Error|Fatal)(?: error)?: "
    # Fields of loggers that write JSON or pairs; pino's and bunyan's numbers.
    r"|(?i:\b(?:level|severity|lvl|levelname|level_name|log\.level|@level)[\"']?\s*[=:]\s*[\"']?(?:error|eror|fatal|critical|crit|panic"
    r"|severe|alert"
    r"|emergency)\b)|\"level\":\s?(?:50|60)\b"
    # Letters and short words of loggers: of glog behind a time, of Ray, of GPFS and Ceph; of oneCCL; of logrus, zerolog, npm,
    # TensorRT.
    r"|(?:^|[\d\]:] )[EF] (?:\d+ \d+\] |[\w./-]+\.\w{1,3}:\d+)|\w: \[[EX]\] |\[(?:ERR|FTL)\] "
    r"|^(?:ERRO|FATA|PANI)(?:\[\d+\]|[: ])|(?:^|[\d\]MZ|] )(?:ERR|FTL|PNC|ERRO|FATA)[!:]? (?=\S)|^npm (?:ERR!|error) |[\d\]]"
    r" \[[EF]\] "
    r"|\bCCL_ERROR\||\bError response from daemon: "
    # Marks of tools and of services that build: a cross, an annotation.
    r"|^(?:❌|💥|🛑|⛔|✗|✘|✖)\uFE0F? ?\S|^(?:::error\b|##\[error\])"
    # A sentence that begins so, or says that one occurred.
    rf"|^\W{{0,12}}(?:[Ee]rror|[Ee]xception|ERROR|EXCEPTION|FATAL|FAILURE|Failure)\b{_IS_METRIC}(?: ?[!\-–(>]| (?:while|during"
    rf"|when|if|in|on|at|from|for"
    r"|with|using|running|executing|loading|reading|opening|writing|saving|creating|building|parsing|processing|calling|starting"
    r"|initiali[sz]ing|connecting|occurr?ed|happened|caught|encountered|raised|message|code|type|details?|info|\[|<|'|\"|`)\b)"
    r"|^\W{0,12}(?i:(?:uncaught|unhandled|unexpected|caught|got|internal|runtime|unknown|critical|system|fatal|raised|encountered)"
    r"(?: an?| the)?(?: \w{1,24})? (?:error|exception)s?)(?: [\w.]{1,40})?[.:!]"
    r"|\b(?i:an? (?:\w{1,24} )?(?:error|exception) (?:has |have |was |were )?(?:occurr?ed|happened|raised|thrown|caught"
    r"|encountered)"
    r"|(?:error|exception) (?:has )?(?:occurr?ed|happened)\b)"
    r"|\bfailed with (?:the following |an? )?(?:\w+ ){0,2}(?:error|exception)s?\b"
    r"|\bencountered (?:an?|the following) (?:\w+ ){0,2}(?:error|exception)\b|^\([\w.+\- ]{1,40}\) (?:Error|ERROR|Fatal): "
    # Words alone, of compilers and builds, and in other languages.
    rf"|^\W{{0,8}}(?:FAILED|FAIL|Failed|Failure|[Aa]bort(?:ing|ed)?|ABORT(?:ED|ING)?|Critical|Alert): (?=\S){_IS_METRIC}"
    r"|^\W{0,8}(?:[Aa]bort(?:ed|ing)|[Gg]iving up|[Ee]rror|[Ss]cript failed)\W{0,3}$"
    r"|^error\[[A-Z]\d+\]: |^\S+:\d+(?::\d+)?: (?:fatal )?error: |: \*\*\* .{1,200}\bStop\.\s*$|^ninja: build stopped"
    r"|^[EF]/[\w.\-]+(?:\( *\d+\))?: "
    r"|^(?:ERREUR|Erreur|FEHLER|Fehler|ERRORE|Errore|错误|エラー|ОШИБКА|Ошибка|오류)\s?[:：!]"
    # TensorFlow writes that an operation failed as a warning; what a data set or a session ends with is none.
    r"|\bop_kernel\.cc:\d+\] (?:OP_REQUIRES failed at \S+ : )?(?!(?i:out.of.range|cancelled|aborted))[A-Z][A-Za-z_]+(?:"
    r" [a-z]+){0,2}: \S"
    r"|^Exception in .{1,120}:\s*$|^Caused by: \S"
    # Assertions of C and C++, Kaldi's, and what C++ and Rust print when they end a program.
    r"|\bAssertion (?:failed\b|failure\b|[`'\"(].{1,300} failed\b)|^(?:ASSERTION_FAILED|KALDI_ASSERT)\b|^\s*what\(\): {1,2}\S"
    r"|^thread '.{0,120}' (?:\(\d+\) )?panicked at |^\s*Execution halted\s*$"
    # Lua, MATLAB and Octave, R, Julia.
    r"|^(?:\S*/)?(?:lua\w*|luajit\S*|th|qlua): \S.{0,200}:\d+: |^(?:Undefined (?:function|variable|symbol)|Unrecognized function)\b"
    r"|^error: \S|^Error (?:using|in) .{1,200}\(line \d+\)\s*$"
    # A stack that is dumped as a program dies.
    r"|^\W{0,6}(?:[Ss]tack[- ]?[Tt]race|[Ss]tack dump|[Bb]ack ?[Tt]race|stack traceback|CALL STACK)\b(?: \([^\n]{0,40}\)| from"
    r" [^\n]{1,60})?\W{0,4}$"
    # MPI's handler of errors, and checks of calls to CUDA in programs of C++.
    r"|^\*\*\* (?:An error occurred in MPI_|MPI_ERRORS_ARE_FATAL)|^\s*Error \S.{1,120} at line \d+ in file \S"
    r"|^(?:GPU ?assert|CUDA[ _]?(?:error|failure|ERROR|Error|Failure)|cudaCheckError\(\) failed) ?(?:[:(]|at \S)"
)
# Frames of stacks: they say nothing of how far a log goes on after its error.
STACK_LINE = re.compile(
    r"\s*(?:#\d{1,3} +(?:0x[0-9a-f]+|\S+\()|frame #\d+: |\[ ?\d{1,3}\] \S|\[0x[0-9a-fA-F]+\]|\d{1,3}: +(?:0x[0-9a-f]+|[\w<].*::)"
    r"|at (?:\S.{0,200}[(:]\S{0,200}:\d+|/rustc/)|@ +(?:0x[0-9a-f]+|\S+ \S+:\d+)|\[\[\{\{node |\[\[Node: "
    r"|\[C\]: in |\S{1,200}:\d+: in (?:function|main chunk|upvalue|method|local)\b"
    r"|File \"[^\"]{1,300}\", line \d+|goroutine \d+ \[|created by \S|\.\.\. \d+ (?:more|common frames)"
    r"|\S{1,300}\((?:\S.{0,400})?\+0x[0-9a-f]+\) ?\[0x[0-9a-f]+\]|/\S{1,300}\.(?:go|rs|c|cc|cpp|cu|h|hpp):\d+\b"
    r"|note: (?:run with|Some details)|Calls: |exit status \d|~*\^+~*\s*$"
    r"|[\w.$/]{1,160}\([\w.{}, 0x]{0,120}\)\s*$|\*\*\* (?:Begin|End) stack trace \*\*\*)"
)
