"""Offline diagnosis of flight records: the files of one gang to the ranks that the others wait for."""

from collections.abc import Sequence
from dataclasses import dataclass

from runner.collect.flight_records.record_files import RecordSet, expand, read_record_files
from runner.rootcause.flight.flight_analysis import FlightVerdict, find_awaited_ranks
from runner.rootcause.flight.rank_spans import describe_ranks

# The cause as verdicts of logs name it.
FAULT = "hang_no_error"


@dataclass(frozen=True, slots=True)
class FlightDiagnosis:
    """What records of one gang show."""

    records: RecordSet
    verdict: FlightVerdict

    @property
    def coverage(self) -> str:
        """Return which records there are: `records of 14 of 16 ranks; none of ranks 3, 9`."""
        read, missing = len(self.records.places), self.records.missing
        text = f"records of {read} of {self.records.num_ranks} ranks"
        return text + (f"; none of {describe_ranks(missing)}" if missing else "")


def diagnose_records(names: Sequence[str], *, expected: int = 0) -> FlightDiagnosis:
    """Judge records: files, or folders of them. `expected`: ranks of the gang, 0 if not known.

    Raises UserError where a file is missing, no record can be read, or records are of different runs.
    """
    records = read_record_files(expand(names), expected=expected)
    return FlightDiagnosis(records, find_awaited_ranks(records.places, num_ranks=records.num_ranks))
