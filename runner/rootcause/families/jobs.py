"""Jobs and the nodes that they run on: the will of the scheduler and of people, nodes and workers that are gone."""

from runner.rootcause.families.family import Family, storage

JOBS = (
    # ---- the operator's and the scheduler's will
    Family(
        "evicted",
        r"\bevict(?:ed|ion|ing)?\b.{0,120}\b(?:memory|oom)\b|\bOOMKilled\b",
        "host_oom",
        layer="machine",
        scope="node",
        sample="pod trainer-3 was evicted: the node was low on resource: memory",
        near="an entry was evicted from the cache",
        confidence=0.8,
    ),
    storage(
        "evicted-for-disk",
        r"\bevict(?:ed|ion|ing)?\b.{0,120}\b(?:ephemeral-storage|disk|inodes?)\b",
        sample="Evicting pod: the node had condition DiskPressure, ephemeral-storage",
        near="the disk cache holds 3 GB",
        confidence=0.7,
    ),
    Family(
        "preempted",
        r"\b(?:(?<!not )preempt\w*|spot (?:instance|interruption|termination)|reclaim(?:ed|ing) by|scheduled maintenance"
        r"|maintenance event"
        r"|(?:job|task|pod|instance|node|workload)s?\b.{0,60}\b(?:evict\w*|cancel(?:l?ed|l?ing)|revoked|due to time limit)"
        r"|time limit (?:reached|exceeded)|wall ?time (?:exceeded|reached|limit))",
        "preemption",
        layer="scheduler",
        scope="scheduler",
        sample="the workload was preempted to make room for a queue of higher priority",
        near="jobs of this queue cannot be changed",
        confidence=0.7,
    ),
    # ---- nodes, workers and the launcher
    Family(
        "node-gone",
        # A node of a graph is no machine.
        r"(?<!for )(?<!\{\{)\b(?:node(?!:|\.kubernetes\.io/\S+ op=)|host|machine|vm|(?<!\()raylet|kubelet|slurmd"
        r"|(?:vm|compute|ec2|spot|cloud) instance)s?\b.{0,80}"
        r"\b(?:died|dead|(?:is|was|been|are|were|got|marked) (?:lost|down|gone|offline|unavailable)|not ?ready|unreachable"
        r"|not responding"
        r"|unresponsive|rebooted|crash\w*|terminated|failed (?:its |the )?(?:health|heartbeat)"
        r"|missed (?:too many )?heartbeats?|lost contact"
        r"|shut ?down unexpectedly|fail(?:ed|ure))\b"
        r"|\bkernel panic\b|\b(?:lost|losing) (?:contact|connection|communication) (?:with|to) (?:the )?(?:node|host|slurmd"
        r"|kubelet)",
        "node_failure",
        layer="scheduler",
        scope="node",
        sample="actor 12 cannot be reached: the node that it ran on was lost",
        near="node 3 runs 8 actors",
        confidence=0.6,
    ),
    Family(
        "kernel-in-trouble",
        r"\b(?:soft lockup|hard lockup|rcu\w*:? .{0,40}stall\w*|kernel bug at|oops:|general protection fault"
        r"|unable to handle kernel"
        r"|double fault|not syncing|csd-?lock|non-responsive CSD|hung_task|NMI watchdog|kthread starved"
        r"|corrupted page table|userspace code)\b",
        "node_failure",
        layer="machine",
        scope="node",
        sample="watchdog: BUG: soft lockup - CPU#12 stuck for 26s!",
        near="lockup detection is on",
        confidence=0.7,
    ),
)  # fmt: skip
