"""The chain of the journal: each entry carries a code that covers it and the code of the entry before.

Only holders of the cluster's token can make a code. With the store's password alone, no entry can be added, changed, dropped or
moved unnoticed; the high-water mark finds out when the newest ones were cut off. A payload in the store is the entry's message, a
blank, and its code.
"""

from collections.abc import Iterable, Iterator, Sequence
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

    def pass_many(self, after: int, items: Sequence[Item]) -> Iterable[bytes]:
        """Return the messages of the entries that follow entry `after`.

        Raises StoreCorrupt at the first that is missing or does not continue the chain, with its number: at once, or when
        the iteration comes to it.
        """
        return self._passed_at_once(after, items) or self._passed_each(after, items)

    def _passed_at_once(self, after: int, items: Sequence[Item]) -> list[bytes]:
        """Return all messages if nothing is wrong and all are of the token that made the last code; else none.

        Nearly always so: after a start a million entries pass here, one hash each.
        """
        if not items or [item.number for item in items] != [
            *range(after + 1, after + 1 + len(items))
        ]:
            return []
        if not self._signer.is_active:
            self.number = items[-1].number
            return [split(item.payload)[0] for item in items]
        token = self.token
        if token is None:
            return []
        messages = [item.payload[:-_ADDED_BYTES] for item in items]
        codes = [item.payload[-CODE_CHARACTERS:] for item in items]
        if not compare_digest(
            b"".join(codes), self._signer.links([self.code, *codes], messages, token)
        ):
            return []
        self.number, self.code = items[-1].number, codes[-1]
        return messages

    def _passed_each(self, after: int, items: Iterable[Item]) -> Iterator[bytes]:
        is_active = self._signer.is_active
        for number, item in enumerate(items, after + 1):
            if item.number != number:
                raise StoreCorrupt(f"journal entry {number} is missing, {item.number} follows")
            message, code = split(item.payload)
            if is_active:
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
