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
)
