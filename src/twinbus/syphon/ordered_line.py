"""Letters in line for one destination where order counts: one line a key, and one batch of a key on its way at a time.

Keys do not wait for each other. A batch takes letters of as many keys as fit; those keys then wait for its answer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from twinbus.pairing.order import Key
from twinbus.syphon.batches import HEAD_BYTES_MAX, SECTION_BYTES
from twinbus.syphon.destination import Destination
from twinbus.syphon.letters import Held
from twinbus.syphon.options import SyphonOptions

LineKey = tuple[int, Key]
"""A key in one backlog queue: the same key in two queues has no order between them."""


def line_key(held: Held) -> LineKey:
    return held.lot.queue.index, held.place.key


class KeyLine:
    __slots__ = ("alone_to", "is_busy", "letters")

    def __init__(self) -> None:
        self.letters: list[Held] = []
        """By number, lowest first."""
        self.is_busy = False
        """A batch with letters of this key is on its way."""
        self.alone_to = 0
        """Letters up to this number were in a batch that was refused: each goes alone, since one is to blame."""

    def add(self, held: Held) -> None:
        sequence = held.place.sequence
        if not self.letters or self.letters[-1].place.sequence < sequence:
            self.letters.append(held)
        else:
            self.letters.insert(bisect_left(self.letters, sequence, key=_sequence), held)


def _sequence(held: Held) -> int:
    return held.place.sequence


class OrderedLine:
    def __init__(self) -> None:
        self._keys: dict[LineKey, KeyLine] = {}
        self._free: dict[LineKey, None] = {}
        """Keys with letters that may be sent, first come, first served."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Held]:
        for line in self._keys.values():
            yield from line.letters

    def append(self, held: Held, /) -> None:
        key = line_key(held)
        line = self._keys.get(key)
        if line is None:
            line = self._keys[key] = KeyLine()
        line.add(held)
        self._count += 1
        if not line.is_busy:
            self._free[key] = None

    def extend(self, letters: Iterable[Held], /) -> None:
        for held in letters:
            self.append(held)

    def clear(self) -> None:
        """Nothing is in line; keys whose batch is on its way stay busy."""
        self._keys = {key: line for key, line in self._keys.items() if line.is_busy}
        for line in self._keys.values():
            line.letters = []
        self._free.clear()
        self._count = 0

    @property
    def can_send(self) -> bool:
        return bool(self._free)

    # --- letters go ---

    def take(self, limit_bytes: int, most: int) -> list[Held]:
        """The next letters that fit together, at least one if any may go. They leave the line; `sent` tells more."""
        room = limit_bytes - HEAD_BYTES_MAX
        taken: list[Held] = []
        for key in self._free:
            line = self._keys[key]
            if line.letters[0].place.sequence <= line.alone_to:
                if not taken:
                    taken = self._pull(line, 1)
                break
            count, room = _fitting(line.letters, room, most - len(taken), is_first=not taken)
            taken += self._pull(line, count)
            if line.letters or len(taken) >= most:
                break
        return taken

    def _pull(self, line: KeyLine, count: int) -> list[Held]:
        letters = line.letters[:count]
        del line.letters[:count]
        self._count -= len(letters)
        return letters

    def sent(self, taken: Iterable[Held], going: Iterable[Held]) -> None:
        """Of the letters that were taken these are on their way; the others left some other way."""
        for key in {line_key(held) for held in going}:
            line = self._keys.setdefault(key, KeyLine())
            line.is_busy = True
            self._free.pop(key, None)
        for key in {line_key(held) for held in taken}:
            self._tidy(key)

    def ended(self, letters: Iterable[Held]) -> None:
        """A batch with these letters is not on its way any more."""
        for key in {line_key(held) for held in letters}:
            if key in self._keys:
                self._keys[key].is_busy = False
                self._tidy(key)

    def put_back(self, letters: Iterable[Held]) -> None:
        """These are still to be sent, each alone."""
        for held in letters:
            self.append(held)
            line = self._keys[line_key(held)]
            line.alone_to = max(line.alone_to, held.place.sequence)

    def take_key(self, key: LineKey) -> list[Held]:
        """Everything of one key that is in line."""
        line = self._keys.get(key)
        if line is None:
            return []
        letters = self._pull(line, len(line.letters))
        self._tidy(key)
        return letters

    def take_one(self, key: LineKey, sequence: int) -> Held | None:
        """The letter with this number, out of line; None if it is not in it."""
        line = self._keys.get(key)
        if line is None:
            return None
        at = bisect_left(line.letters, sequence, key=_sequence)
        if at == len(line.letters) or line.letters[at].place.sequence != sequence:
            return None
        held = line.letters.pop(at)
        self._count -= 1
        self._tidy(key)
        return held

    def _tidy(self, key: LineKey) -> None:
        line = self._keys.get(key)
        if line is None or line.is_busy:
            return
        if line.letters:
            self._free[key] = None
        else:
            self._free.pop(key, None)
            del self._keys[key]


def _fitting(letters: list[Held], room: int, most: int, *, is_first: bool) -> tuple[int, int]:
    """How many of these letters fit, and what room is left then. The first of a batch always fits."""
    count = 0
    for held in letters[:most]:
        need = len(held.letter) + SECTION_BYTES
        if need > room and not (is_first and not count):
            break
        room -= need
        count += 1
    return count, room


class OrderedDestination(Destination):
    """A destination with one line a key."""

    def __init__(self, path: str, options: SyphonOptions) -> None:
        super().__init__(path, options)
        self.waiting = self.line = OrderedLine()

    def take(self, most: int) -> list[Held]:
        return self.line.take(self.batch_bytes, most)

    def room(self) -> int:
        return super().room() if self.line.can_send else 0
