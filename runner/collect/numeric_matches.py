"""What detectors find in the numbers of a log, as matches to be judged beside its lines; some are taken back by a later finding."""

from collections.abc import Sequence

from runner.detect.numerics.findings import NumericFinding
from runner.facts.matches import Match

SIGNATURE = "metrics"


def match_of_finding(
    finding: NumericFinding, file: str, line: int, *, rank: int | None = None
) -> Match:
    """Return what a detector found in the numbers of a file as a match, to be judged beside lines."""
    return Match(
        signature=SIGNATURE,
        fault=finding.fault,
        layer="metrics",
        scope="user",
        file=file,
        line=line,
        text=f"from step {finding.onset_step}: {finding.evidence}",
        rank=rank,
        named={"onset_step": str(finding.onset_step)},
    )


def spike_onset(match: Match) -> int | None:
    """Return the step at which a loss spike began; None: the match is of something else."""
    is_spike = match.signature == SIGNATURE and match.fault == "loss_spike"
    return int(match.named["onset_step"]) if is_spike else None


def validation_onset(match: Match) -> int | None:
    """Return the step at which a validation loss began to rise; None: the match is of something else."""
    is_rise = match.signature == SIGNATURE and match.fault == "validation_divergence"
    return int(match.named["onset_step"]) if is_rise else None


def without_taken_back(matches: Sequence[Match], finding: NumericFinding) -> list[Match]:
    """Return the matches that a finding leaves: a divergence was no spike before, and an overfit that ends was noise."""
    if finding.fault == "validation_divergence" and finding.recovered:
        return [one for one in matches if not _is_begun_by(one, finding)]
    if finding.fault == "divergence" and finding.severity == "incident":
        onsets = ((one, spike_onset(one)) for one in matches)
        return [one for one, onset in onsets if onset is None or onset < finding.onset_step]
    return list(matches)


def _is_begun_by(match: Match, recovery: NumericFinding) -> bool:
    """Whether a match is of the finding that this recovery ends."""
    is_same = match.signature == SIGNATURE and match.fault == recovery.fault
    return is_same and match.named["onset_step"] == str(recovery.onset_step)
