"""What a command puts into a request besides its content: who asks, and why."""

import getpass
import os
import pwd

from runner.errors import UserError
from runner.serve.requests import MAX_REASON_CHARACTERS
from runner.serve.requests import NoAnswer as NoAnswer
from runner.serve.requests import ask as ask
from runner.serve.requests import decode_answer as decode_answer
from runner.serve.requests import new_request_id as new_request_id
from runner.serve.requests import send as send


def requester() -> str:
    """Return the user's name, for the journal; "unknown" for an id without one, as in containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def checked_reason(text: str) -> str:
    """Return the reason; raise UserError if it is no single short line."""
    if len(text) > MAX_REASON_CHARACTERS or not text.isprintable():
        raise UserError(
            f"--why: {text[:60]!r} is too long or has line breaks; write one line of at most {MAX_REASON_CHARACTERS} characters"
        )
    return text


def submitting_user() -> str:
    """Return the name of this process's effective user, who will own the ranks; "" without a name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""
