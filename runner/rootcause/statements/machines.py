"""What is stated of devices, networks, hosts and storage."""

from functools import partial

from runner.rootcause.statements.statement import DOWN, GONE, IS, Statement

_device = partial(Statement, layer="device")
_network = partial(Statement, fault="nccl_network", layer="network")
_machine = partial(Statement, layer="machine")
_storage = partial(Statement, fault="filesystem", layer="machine")
_ACCELERATOR = r"(?:GPU|accelerator|NPU|TPU|XPU|HPU|DCU|chip)"
# A name or number behind a word.
_NAMED = r"(?:[ :#\[]{1,2}[\w.:\-]{1,24}\]?)?"

MACHINES: tuple[Statement, ...] = (
    _device(
        rf"\bonly (?P<few>\d+) ?(?:of|/|out of) ?(?P<all>\d+) (?:\w+ ){{0,2}}{_ACCELERATOR}s?\b"
        rf"|\b(?P<few2>\d+) ?(?:of|/|out of) ?(?P<all2>\d+) {_ACCELERATOR}s? (?:are |were )?(?:found|detected|visible|respond\w*"
        r"|online|enumerated|present|healthy)\b"
        rf"|\bexpect\w* (?P<all3>\d+) (?:\w+ )?{_ACCELERATOR}s?\b.{{0,30}}\b(?:found|got|detected|have|see|sees|only)\D{{1,10}}"
        r"(?P<few3>\d+)\b",
        "gpu_lost",
        sample="node check: only 7 of 8 GPUs answer on host a12",
        near="node check: 8 of 8 GPUs found on host a12",
    ),
    _device(
        rf"\b{_ACCELERATOR}{_NAMED} {IS}{GONE}\b(?!.{{0,40}}\b(?:memory|process|driver|package|module|librar))"
        r"|\b(?:nvidia|rocm|amd|npu|hl|mx|xpu)-smi (?:hung|hangs|timed out|times out|did not (?:return|answer)|does not"
        r" (?:return|answer)|is stuck|got stuck)\b"
        rf"|\bmark\w* (?:the )?{_ACCELERATOR}{_NAMED} (?:as )?(?:lost|bad|dead|unhealthy|faulty)\b",
        "gpu_lost",
        sample="agent: accelerator 3 has stopped responding",
        near="agent: accelerator 3 has 80 GB of memory",
    ),
    _device(
        rf"\b(?:{_ACCELERATOR}|cuda:\d+|device \d+|HBM|VRAM)\b.{{0,60}}\b(?:mismatch(?:es|ing|ed)? (?:words?|bytes?|bits?|values?)"
        r"|bit ?-?flips?|uncorrect\w+ (?:\w+ ){0,2}errors?|double-?bit|memory corruption)\b"
        r"|\b(?:ecc|memory)\w*uncorrect\w*.{0,40}\b(?:value|count)?\s?[=:]\s?[1-9]"
        r"|\b(?:ecc|memory ?test)\b.{0,60}\b(?:found|detected|shows|reports) (?P<some>[1-9]\d*) (?:\w+ ){0,2}(?:errors?|mismatch\w*"
        r"|words?|bit ?-?flips?)\b",
        "gpu_ecc",
        sample="burn-in: cuda:5 has 12 mismatching words after the pattern test",
        near="burn-in: cuda:5 has no mismatching words after the pattern test",
    ),
    _device(
        rf"\b(?:nv ?link|xgmi|infinity fabric|{_ACCELERATOR} ?\d+ ?(?:<-+>|-|to) ?{_ACCELERATOR}? ?\d+)\b.{{0,60}}\b(?:inactive"
        rf"|{DOWN}(?! links)"
        r"|degraded|[1-9]\d* (?:crc|replay|fatal) errors?|not (?:active|up|trained)|failed|width (?:is )?reduced)\b"
        rf"|\blinks?{_NAMED} of {_ACCELERATOR}{_NAMED} {IS}(?:inactive|down|degraded|failed|off)\b"
        rf"|\b(?:nv ?link|p2p|peer-to-peer|{_ACCELERATOR} ?\d+ ?<-+> ?)\b.{{0,60}}\bbandwidth\b.{{0,30}}\b(?:is )?(?P<low>\d[\d.]*)"
        r" ?GB/s.{0,20}\b(?:expected|instead of|limit|minimum|below|of)\D{1,4}(?P<high>\d[\d.]*)",
        "nvlink_error",
        layer="link",
        sample="topology: link 4 of GPU 6 is inactive",
        near="topology: link 4 of GPU 6 is active",
    ),
    _device(
        r"\b(?:temperature|temp|inlet|hot ?spot|junction|thermal|coolant|cooling)\b.{0,50}\b(?:exceed(?:s|ed)"
        r"|(?:is )?over (?:the )?"
        r"(?:limit|threshold)|above (?:the )?(?:limit|threshold|maximum)|too high|critically high|overheat\w*|fail(?:ed|ure)"
        r"|lost)\b"
        rf"|\bthrottl(?:ing|ed) (?:all |the )?(?:{_ACCELERATOR}s?|clocks?)\b"
        rf"|\b(?:clocks?|{_ACCELERATOR}{_NAMED}) {IS}(?:thermally )?throttled\b|\b(?:fan|pump){_NAMED} {IS}(?:stopped|failed"
        rf"|stalled"
        r"|not spinning)\b|\b(?:power (?:brake|cap|limit)|breaker)\b.{0,30}\b(?:asserted|engaged|tripped|exceeded)\b",
        "thermal_power",
        sample="rack agent: inlet temperature of 48 C exceeds the limit",
        near="rack agent: inlet temperature of 24 C",
    ),
    _network(
        rf"\b(?:eth\d|ib\d|en[ops]\w+|bond\d|mlx\d_\d|hsn\d|nic|uplink|port|interface|network card|switch port){_NAMED} {IS}"
        rf"(?:flapp(?:ed|ing)|{DOWN}|lost (?:its )?(?:carrier|link)|without (?:carrier|link)|dropping packets)\b"
        r"|\b[1-9][\d.]* ?% packet loss\b|\bpacket loss(?: of| is|[:=]) ?[1-9]"
        r"|\b(?:eth\d|ib\d|mlx\d_\d|bond\d)\b.{0,30}\bflapped (?P<many>\d+) times\b"
        rf"|\b(?:pair|link|network|fabric|rdma|ib|nic|all-?reduce|iperf|between)\b.{{0,40}}\b(?:achieved|measured|reached|got"
        rf"|bandwidth"
        rf" (?:is|of|was)) (?P<low>\d[\d.]*) ?[GM]b(?:it)?(?:/s|ps) (?:of|instead of|,? ?expected"
        rf"|where)\D{{0,4}}(?P<high>\d[\d.]*)",
        sample="link watch: eth2 of worker-7 flapped 6 times in a minute",
        near="link watch: eth2 of worker-7 is up",
    ),
    _machine(
        r"\b(?:was |were |been |got )?killed by (?:the )?(?:kernel'?s? )?(?:oom|out[- ]of[- ]memory)(?: killer)?\b"
        r"|\bran out of (?:host |system |cpu |main )memory\b|\bout of memory on (?:the )?(?:host|node|machine)\b"
        rf"|\b(?:host|system|cpu) (?:memory|ram) {IS}(?:exhausted|full|used up)\b"
        r"|\b(?:RAM|host memory|memory limit)\b.{0,60}\b(?:was|were|been|and) killed\b",
        "host_oom",
        sample="supervisor: child used 503 of 503 GiB RAM and was killed",
        near="supervisor: child used 103 of 503 GiB RAM",
    ),
    _machine(
        rf"\b(?:node|host|machine|worker node|instance){_NAMED} {IS}(?:dead|died|crashed|rebooted|rebooting|lost|unreachable|{DOWN}"
        r"|powered off|hung|unresponsive|not respond\w*)\b(?! ?\?)"
        r"|\b(?:lost|no|missed) (?:contact|heartbeats?|connection|sign of life) (?:with|from|of|to) (?:the )?(?:node|host|machine"
        r"|server)\b|\b(?:declar|consider|mark)(?:ed|ing) (?:the )?(?:node|host|machine|it) (?:as )?(?:dead|lost|down|failed)\b",
        "node_failure",
        sample="controller: no heartbeat from host gpu-17 for 300 s, declaring it dead",
        near="controller: heartbeat from host gpu-17 after 3 s",
    ),
    _machine(
        r"\b(?:DIMM\w*|CPU\d?|memory module|motherboard|raid controller|PCIe (?:slot|switch|riser)|NIC|disk|drive|SSD)\S{0,10}"
        rf" {IS}(?:failed(?! over)|faulty|broken|defective|failing)\b"
        r"|\b(?:DIMM\w*|CPU\d?|memory module)\b.{0,40}\b(?:uncorrect\w+|machine check|fatal) (?:\w+ )?errors?\b"
        r"|\breplace (?:the )?(?:"
        r"module|DIMM|CPU|board|disk|drive|NIC|cable|PSU)\b",
        "host_hardware",
        sample="diagnostics: DIMM_B2 failed with uncorrectable errors; replace the module",
        near="diagnostics: DIMM_B2 is of 64 GB",
    ),
    _machine(
        rf"\b(?:NIC|network (?:adapter|card)|adapter|HCA|mlx\d_\d|nvme\d\w*|disk|drive|SSD){_NAMED} {IS}(?:no longer (?:present"
        rf"|visible"
        r"|detected|there)|disappeared|vanished|missing|gone|removed)\b",
        "device_vanished",
        sample="agent: network adapter mlx5_3 is no longer present",
        near="agent: network adapter mlx5_3 is present",
    ),
    _storage(
        rf"\s/[\w.\-/]+ {IS}(?:read-only|full|stalled|unreachable|not (?:mounted|writable))\b"
        r"|(?:\b(?:storage|mount(?: point)?|volume|NFS|Lustre|GPFS|Weka|Ceph|file ?system|file server|storage server|share"
        rf"|scratch)){_NAMED} {IS}(?:read-only|full|stalled|unreachable|unavailable|not (?:mounted|writable|responding|answering)"
        rf"|stale"
        r"|hung|out of (?:space|inodes))\b"
        r"|\b(?:storage|file) server (?:does|did) not (?:answer|respond)\b|\b(?:write|read|save|flush|fsync)s? (?:to|from|of) /\S+"
        rf" {IS}(?:stalled|blocked|stuck|hanging)\b|\bdisk (?:is |was )?full\b|\bout of (?:disk space|inodes)\b"
        r"|\b(?:503|slow ?down|throttl\w+)\b.{0,40}\bgiv(?:ing|en) up\b",
        sample="pre-flight: /mnt/data is read-only, not starting",
        near="pre-flight: /mnt/data is mounted read-write",
    ),
)
