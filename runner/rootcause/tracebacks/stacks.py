"""Stacks: the frames around an exception, with what each is about and the phase that they show."""

from collections.abc import Sequence
from dataclasses import dataclass

from runner.rootcause.tracebacks.objects import Frame
from runner.rootcause.tracebacks.package_subjects import Subject
from runner.rootcause.tracebacks.phases import Phase
from runner.rootcause.tracebacks.subjects import CodePlace, subject_of_words

# Of the program's own frames, whose lines of source are asked for their subject; chosen.
CODE_FRAMES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What is around an exception: its frames and those of the exceptions that it led to, the innermost first."""

    frames: Sequence[Frame]
    places: Sequence[CodePlace]
    phase: Phase
    # Whether a step is above in its log; None: the log has none.
    has_stepped: bool | None = None

    def first_of(self, *subjects: Subject) -> Subject:
        """Return the innermost of these subjects; "" for none."""
        return next((one.subject for one in self.places if one.subject in subjects), "")

    @property
    def code_subject(self) -> Subject:
        """What the program's innermost lines of source are about, by their words."""
        own = [
            frame
            for frame, place in zip(reversed(self.frames), self.places, strict=True)
            if place.is_user
        ]
        named = (subject_of_words(frame.code) for frame in own[:CODE_FRAMES])
        return next((subject for subject in named if subject), "")

    @property
    def is_checkpoint(self) -> bool:
        """Whether a checkpoint was written or read, and not data."""
        subject = self.first_of("checkpoint", "data")
        return subject == "checkpoint" or (not subject and self.phase == "saving")

    @property
    def is_data(self) -> bool:
        """Whether data were read."""
        return self.first_of("checkpoint", "data") == "data"

    @property
    def innermost(self) -> Subject:
        """The subject of the innermost code that has one; "" for none."""
        return next((place.subject for place in self.places if place.subject), "")
