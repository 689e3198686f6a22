"""Ranks that could not meet at the start: stores, quorums, coordinators and names that did not answer."""

from functools import partial

from runner.rootcause.signatures.signature import Signature

_meeting = partial(Signature, fault="rendezvous", layer="network", scope="fabric")

MEETINGS = (
    _meeting(
        "store-without-key",
        r"\b[Tt]imed out waiting for keys?\b|\bKVS get (?:value )?timeout\b"
        r"|\b(?:kvs_get_value\w*|get_local_kvs_id|internal_kvs\w*)\b.{0,80}\b(?:timeout|failed|EXCEPTION)\b",
        source="gloo and Horovod, stores of addresses; oneCCL, its store of keys",
        sample="Timed out waiting for key rank_3 to be set in rendezvous store after 30 seconds",
        near="waited 3 s for key rank_3 to be set in rendezvous store",
    ),
    _meeting(
        "quorum-failed",
        r"\b(?:lighthouse )?quorum (?:RPC )?(?:failed|timed out|could not be reached|not reached (?:in|within|after))\b"
        r"|\bfailed to connect to (?:the )?lighthouse\b|\b[Cc]luster topology build failed\b|\b[Tt]opology build timed out\b"
        r"|\b[Ff]ailed to (?:connect|register) to the (?:meta server|scheduler)\b.{0,80}\b(?:timed? ?out|giv\w+ up|exit"
        r"|after \d+ (?:times|retries))",
        source="torchft, lighthouse and manager; MindSpore, its cluster of compute nodes",
        sample="torchft::manager: [Replica 3] lighthouse quorum failed. error: status: DeadlineExceeded",
        near="torchft::lighthouse: Quorum! quorum_id: 4, participants: 4",
    ),
    _meeting(
        "peers-did-not-come",
        r"\b[Tt]imed out (?:after .{1,30} )?waiting (?:for|on) (?:all |other |the |remaining |missing |some )?(?:\d+ )?(?:\w+ )?"
        r"(?:workers?|peers?|nodes?|hosts?|replicas?|members|participants|trainers?|servers?|pods?|agents?|processes)"
        r"(?: to (?:join|connect|register|start|come up|perform|be(?:come)? ready|respond|check in|report)\b|[.,:;]|[ \t\r]*$)"
        r"|\b(?:only|just) \d+ (?:of|out of|/) ?\d+ (?:\w+ )?(?:workers?|peers?|nodes?|hosts?|ranks?|replicas?|members"
        r"|participants|pods?"
        r"|clients|processes) (?:has |have )?(?:joined|connected|registered|arrived|showed up|checked in|came)\b.{0,80}"
        r"\b(?:after \d|timed? ?out|timeout|giving up|abort\w*|fail\w*)"
        r"|\b[Gg]ave up waiting for (?:\w+ ){0,3}(?:workers?|peers?|nodes?|hosts?|ranks?|master|coordinator|rendezvous)\b"
        r"|\b(?:coordinator|master|rendezvous|chief|scheduler|store)\b.{0,60}\b(?:did not (?:answer|respond|come up"
        r"|become ready)\b"
        r"|(?:is|was) (?:unreachable|not reachable) (?:after|for|since) \d)",
        source="launchers and trainers, in the words that people write",
        sample="Timed out after 600 s waiting for all 8 nodes to join: 7 did",
        near="waiting for all 8 nodes to join: 7 did",
    ),
    _meeting(
        "grpc-never-connected",
        r"\bdetails = \"failed to connect to all addresses\b|\bSsl handshake failed\b|\bHandshake failed with fatal error\b",
        layer="collective",
        source="gRPC, its clients: no address of a service could be reached, or its certificate is not trusted",
        sample='	details = "failed to connect to all addresses; last error: UNKNOWN: Ssl handshake failed"',
        near='	details = "connected to all addresses"',
    ),
    Signature(
        "closed-on-purpose",
        r"(?i)\b(?:disconnect(?:ed|ing)|connections? (?:\w+ ){0,2}(?:closed|dropped|lost|reset))\b.{0,60}\b(?:gracefully|cleanly"
        r"|normally|as expected|on purpose|after EOF|at shutdown|during (?:a )?(?:normal |clean )?shutdown)\b",
        fault="",
        layer="other",
        scope="rank",
        weight="benign",
        source="servers and clients that part at the end of a job",
        sample="client 10.0.0.3: connection closed by peer after EOF; 8 of 8 clients finished",
        near="client 10.0.0.3: connection closed by peer",
    ),
    _meeting(
        "task-not-registered",
        r"RPC: /tensorflow\.CoordinationService/(?:RegisterTask|Barrier\b.{0,200}PjRT_Client_Connect)"
        r"|\bRegisterTask\b.{0,80}\b(?:fail"
        r"|DEADLINE_EXCEEDED|Deadline Exceeded|UNAVAILABLE)",
        layer="collective",
        source="TensorFlow and JAX: the coordination service did not answer a task that starts",
        sample="RPC: /tensorflow.CoordinationService/RegisterTask",
        near="RPC: /tensorflow.CoordinationService/Heartbeat",
    ),
)
