"""Messages that were parsed before: the server's own records need not be parsed for every request.

Parsing takes a hundred times as long as reading, and what comes out takes ten times the memory.  So
a few messages are kept, as many as have a certain number of bytes together.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar

from veiltab.wire.signed import Signed, SignedMessage

T = TypeVar("T")
MessageType = TypeVar("MessageType", bound=SignedMessage)
MOST_BYTES = 16 * 2**20


class ParsedMessages:
    """The messages that were used last; safe for use by several threads."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        """Keep messages of at most so many bytes together, and always the last one."""
        self._most, self._size = most, 0
        self._kept: OrderedDict[bytes, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    def load(self, loads: Callable[[bytes], T], content: bytes) -> T:
        """Return a message of the server's own records, parsed now or before."""
        name = hashlib.sha256(content).digest()
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                message: T = self._kept[name][0]
                return message
        message = loads(content)
        self._keep(name, message, len(content))
        return message

    def keep(self, message: Signed[MessageType]) -> bytes:
        """Write a message that will be read again soon, and return its bytes."""
        content = message.dumps()
        self._keep(hashlib.sha256(content).digest(), message, len(content))
        return content

    def _keep(self, name: bytes, message: object, size: int) -> None:
        with self._lock:
            if name not in self._kept:
                self._kept[name] = message, size
                self._size += size
            while self._size > self._most and len(self._kept) > 1:
                _, (_, dropped) = self._kept.popitem(last=False)
                self._size -= dropped


PARSED = ParsedMessages()
"""Of all servers in this process: the same bytes are the same message for each of them."""
