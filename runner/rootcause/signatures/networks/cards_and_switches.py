"""Reports of tools and logs of switches about ports: their state, their errors, and neighbours that are gone."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_network = partial(Signature, fault="nccl_network", layer="network", scope="node")
_fabric = partial(Signature, fault="nccl_network", layer="network", scope="fabric")

CARDS_AND_SWITCHES = (
    _network(
        "port-report-is-down",
        r"\b(?:Physical state|State) {4,}: (?:Polling|Disable\w*|Port PLR state|ETH_AN_FSM|Down)\b"
        r"|\bRecommendation +: (?:Cable is unplugged|Bad signal integrity|Remote faults? received|Stamping of|The port is down"
        r"|Neg\w* failure|Link (?:is )?down|Module|.{0,40}\b(?:failure|failed|error)\b)",
        source="mlxlink: state of a port and what it recommends",
        sample="Physical state                  : Polling",
        near="Physical state                  : LinkUp",
    ),
    _fabric(
        "port-counters-at-their-limit",
        r"\bSymbolErrorCounter:\.+65535\b|\bLinkErrorRecoveryCounter:\.+255\b|\bLinkDownedCounter:\.+255\b"
        r"|\bLocalLinkIntegrityErrors:\.+15\b|\[SymbolError(?:Counter)? == \d{3,}|\[LinkErrorRecovery(?:Counter)? == \d{2,}"
        r"|\[LinkDowned(?:Counter)? == \d{2,}|\blink_down_events_phy: \d{3,}",
        source="infiniband-diags, perfquery and ibqueryerrors; ethtool -S: counters that grew until they could not grow more",
        sample="SymbolErrorCounter:..............65535",
        near="SymbolErrorCounter:..............12",
    ),
    _fabric(
        "fabric-report-has-errors",
        r"(?:^|[\s:])-E- \S.{0,200}\b(?:BER|[Pp]ort|[Ll]ink|lid|LID|[Cc]able|[Cc]ounters?|[Ss]ymbol\w*|[Ss]peed|[Ww]idth"
        r"|[Uu]nhealthy|[Nn]odes?)\b"
        r"|\beffective BER exceeds\b|\] 0x01 -> \w+: ERR [0-9A-F]{4}: .{0,200}\b(?:[Tt]imeout|timed out|failed|error|unhealthy"
        r"|down)\b"
        r"|\bdrop_mgr\w*: Removed port with GUID\b",
        source="ibdiagnet, lines of errors; OpenSM: errors of its requests, and ports that it no longer reaches",
        sample="-E- lid=0x0099 dev=54000 Q9790/U1/P14/1: port counter symbol_error_counter over its threshold",
        near="-I- lid=0x0099 dev=54000 Q9790/U1/P14/1: port counters are within their thresholds",
    ),
    _fabric(
        "pause-storm",
        r"(?i)\bPFC (?:watchdog )?(?:detected )?(?:PFC )?storm (?:is )?(?:detected )?(?:on|at) (?:port |interface |queue )?"
        r"(?P<subject>[\w/.\-]+)",
        role="interrupted",
        source="SONiC, PFC watchdog of orchagent; other switches: a port that is told to pause all the time",
        sample="processQueueEvent: PFC Watchdog detected PFC storm on port Ethernet12, queue index 3",
        near="startWdActionOnQueue: PFC Watchdog storm detection enabled on port Ethernet12",
    ),
    _fabric(
        "pause-storm-over",
        r"(?i)\bPFC (?:watchdog )?(?:PFC )?storm (?:is )?(?:restored|cleared|resolved|ended) (?:on|at) (?:port |interface "
        r"|queue )?"
        r"(?P<subject>[\w/.\-]+)",
        role="cleared",
        weight="supporting",
        source="SONiC, PFC watchdog of orchagent",
        sample="report_pfc_storm: PFC Watchdog storm restored on port Ethernet12, queue index 3",
        near="report_pfc_storm: PFC Watchdog storm detection restarted, queue index 3",
    ),
    _fabric(
        "port-disabled-by-switch",
        r"%[\w\-]+-\d-(?:ERR_?DISABLE|ERRDISABLED?)\b|\bputting \S+ in err-disable state\b|\blink-flap error detected\b"
        r"|\bRPD_BGP_NEIGHBOR_STATE_CHANGED: .{0,120}\bfrom Established to (?:Idle|Active)\b"
        r"|%(?:BGP|ADJCHANGE)[\w\-]*: (?:peer|neighbor) .{0,120}(?:\bDown\b"
        r"|\bold state Established\b.{0,80}\bnew state (?:Idle|Active))",
        source="logs of switches: Cisco, Arista, Juniper, FRR: ports that flapped too often, neighbours that are gone",
        sample="%PM-4-ERR_DISABLE: link-flap error detected on Et1/12, putting Et1/12 in err-disable state",
        near="%BGP-5-ADJCHANGE: peer 10.0.0.2 old state OpenConfirm event Established new state Established",
    ),
    _network(
        "trap-link-down",
        r"\bSNMP_TRAP_LINK_DOWN: .{0,80}\bifOperStatus down\(2\), ifName (?P<subject>[\w/.\-]+)",
        role="interrupted",
        source="Junos, mib2d",
        sample="mib2d[811]: SNMP_TRAP_LINK_DOWN: ifIndex 531, ifAdminStatus up(1), ifOperStatus down(2), ifName et-0/0/12",
        near="mib2d[811]: SNMP_TRAP_LINK_UP: ifIndex 531, ifAdminStatus up(1), ifOperStatus up(1), ifName et-0/0/12",
    ),
    _network(
        "trap-link-up",
        r"\bSNMP_TRAP_LINK_UP: .{0,80}\bifOperStatus up\(1\), ifName (?P<subject>[\w/.\-]+)",
        role="cleared",
        weight="supporting",
        source="Junos, mib2d",
        sample="mib2d[811]: SNMP_TRAP_LINK_UP: ifIndex 531, ifAdminStatus up(1), ifOperStatus up(1), ifName et-0/0/12",
        near="mib2d[811]: SNMP_TRAP_LINK_DOWN: ifIndex 531, ifAdminStatus up(1), ifOperStatus down(2), ifName et-0/0/12",
    ),
    _fabric(
        "fabric-manager-event",
        r"\b(?:[Ss]ymbol error|[Ll]ink downed|[Ll]ink error recovery|[Pp]ort receive errors?|[Ll]ocal link integrity"
        r"|[Ee]xcessive buffer overrun|[Pp]ort xmit discards?|[Nn]on-critical BER|[Hh]igh BER)\w*.{0,40}\bthreshold (?:is "
        r"|was )?exceeded"
        r"|\b[Hh]old ?[Tt]imer? [Ee]xpired\b|\bstate changed (?:from )?[Aa]ctive (?:->|to) (?:[Dd]own|[Ii]nit)"
        r"|\bpeer[- ]?link is down\b|\b[Ll]ink down \((?:remote|local) fault\)|\b(?:swp|sw)\d{1,3}\w*: link down\b",
        source="UFM, its events; MLNX-OS; Cumulus Linux, switchd and clagd; BGP of Junos, Cisco and FRR",
        sample="[UFM] WARNING [112] Symbol error counter rate threshold exceeded. Threshold is 200, calculated delta 41882",
        near="[UFM] INFO [112] Symbol error counter rate threshold is 200",
    ),
    _fabric(
        "management-datagram-lost",
        r"\bibwarn: \[\d+\] (?:_?do_madrpc|mad_rpc\w*): .{0,60}\bfailed\b|\biberror: failed: \S"
        r"|\bbad status 110; Connection timed out\b",
        source="infiniband-diags and libibmad: a port did not answer",
        sample="ibwarn: [99] _do_madrpc: recv failed: Connection timed out",
        near="ibwarn: [99] mad_rpc_set_timeout: timeout is 3000 ms",
    ),
    _network(
        "adapter-reset-or-down",
        r"\bena \S.{0,60}(?:Found a Tx that wasn't completed on time|due to missing keep alive|Keep alive watchdog timeout)"
        r"|\bhfi1 .{0,40}\b(?:[Ll]ink down reason: [1-9]|set_link_state: current ACTIVE, new (?:OFFLINE|DN_\w+))"
        r"|\bhabanalabs \S.{0,40}\b(?:Loss of NIC link|port \d+ link down)\b|\bionic\w* .{0,80}\b(?:tx recovery failed"
        r"|FW (?:is )?down)\b"
        r"|\b(?:QP|qp)[ #]{0,2}\w{1,10}:? .{0,30}\b(?:moved|transitioned|went|goes|moving) (?:in)?to (?:the )?error state\b"
        r"|\bqp#\d+ retry limit exceeded\b"
        r"|\birdma \S.{0,80}\b(?:abnormal ae_id|Requesting a reset|reset requested|retries exceeded)",
        source="Linux, drivers ena, hfi1, habanalabs, ionic, irdma, bnxt_re and rxe",
        sample="ena 0000:00:05.0 eth0: Found a Tx that wasn't completed on time, qid 3, index 712.",
        near="ena 0000:00:05.0 eth0: Local page cache is disabled for less than 16 channels",
    ),
)
