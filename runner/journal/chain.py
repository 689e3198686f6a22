"""The chain of the journal: each entry carries a code that covers it and the code of the entry before.

Only holders of the cluster's token can make a code. With the store's password alone, no entry can be added, changed, dropped or
moved unnoticed; the high-water mark finds out when the newest ones were cut off. A payload in the store is the entry's message, a
blank, and its code.
"""

from collections.abc import Iterable, Iterator
from hmac import compare_digest

from runner.errors import StoreCorrupt
from runner.signer import CODE_CHARACTERS, UNSIGNED, Signer
from runner.store.protocol import Item

_SEPARATOR = b" "
_ADDED_BYTES = CODE_CHARACTERS + len(_SEPARATOR)
# A message ends like this, a code does not.
_END_OF_MESSAGE = b"}"


def split(payload: bytes) -> tuple[bytes, bytes]:
    """Return message and code of an entry as the store has it; the code is empty in a journal without codes."""
    if payload.endswith(_END_OF_MESSAGE):
        return payload, b""
    return payload[:-_ADDED_BYTES], payload[-CODE_CHARACTERS:]


class Chain:
    """Follows a journal: knows the newest entry that it passed, and makes and checks the code of the next.

    Without a token it makes no codes and passes everything. `unsigned_through`: entries up to this one may lack a code.
    """

    def __init__(self, signer: Signer = UNSIGNED, *, unsigned_through: int = 0) -> None:
        self._signer = signer
        self.unsigned_through = unsigned_through
        self.number, self.code = 0, b""
        # The number of the token that made the last code, if known: no later entry is of an earlier token.
        self.token: int | None = None

    @property
    def is_active(self) -> bool:
        """Whether it makes codes and checks them."""
        return self._signer.is_active

    def start_after(self, number: int, code: bytes, token: int | None = None) -> None:
        """Follow from the entry after this one, whose code is known, and perhaps its token."""
        self.number, self.code, self.token = number, code, token
        if token is not None:
            self._signer.sign_with(token)

    def extended(self, messages: list[bytes], token: int) -> tuple[list[bytes], bytes]:
        """Return the payloads of the next entries, of this token, and the code of the last; nothing is passed yet."""
        if not self.is_active:
            return messages, b""
        payloads, code = [], self.code
        for message in messages:
            code = self._signer.link(code, message, token)
            payloads.append(message + _SEPARATOR + code)
        return payloads, code

    def pass_many(self, after: int, items: Iterable[Item]) -> Iterator[bytes]:
        """Yield the messages of the entries that follow entry `after`.

        Raises StoreCorrupt at the first that is missing or does not continue the chain, with its number.
        """
        is_active, from_token, link = self._signer.is_active, None, None
        for number, item in enumerate(items, after + 1):
            if item.number != number:
                raise StoreCorrupt(f"journal entry {number} is missing, {item.number} follows")
            message, code = split(item.payload)
            if is_active:
                # Nearly all are of the token that made the last code. A million pass here after a start: one hash each.
                if self.token is not None and from_token != self.token:
                    from_token, link = self.token, self._signer.links_of(self.token)
                if link is None or not compare_digest(code, link(self.code, message)):
                    self._check(number, message, code)
            self.number, self.code = number, code
            yield message

    def _check(self, number: int, message: bytes, code: bytes) -> None:
        if not code and number <= self.unsigned_through:
            return
        if not code:
            raise StoreCorrupt(
                f"journal entry {number} carries no code: a release before codes wrote it, another cluster of this name, or a "
                "program that has the store's password and not this cluster's token; if the journal is your own of an earlier "
                "release, `stoker store accept` shows what it holds and asks"
            )
        token = self._signer.token_of_link(self.code, message, code)
        if token is None or (self.token is not None and token < self.token):
            raise StoreCorrupt(
                f"journal entry {number} does not verify: it was changed, moved, or written without this cluster's token, or "
                "entries before it are gone; if the token was changed, copy its file to this machine; otherwise change the "
                "store's password, and restore a copy of the store from before"
            )
        self.token = token
        self._signer.sign_with(token)
