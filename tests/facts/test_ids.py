"""Ids are tuples that are written as text."""

import copy
import pickle

from runner.facts.ids import AttemptId


def test_an_id_can_be_copied_and_pickled() -> None:
    """It is a tuple of its own kind."""
    attempt = AttemptId(12, 45, 2)
    for same in (copy.copy(attempt), copy.deepcopy(attempt), pickle.loads(pickle.dumps(attempt))):
        assert same == attempt
        assert type(same) is AttemptId
    assert repr(attempt) == "AttemptId(12, 45, 2)"
