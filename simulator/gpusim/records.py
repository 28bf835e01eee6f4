"""The text form of the machine's state: one record a line, `kind key=value key=value`.

Values are percent-encoded where they hold a space, a percent sign or a control character. The library reads and writes
the same file (nvml/state.c), so the order of kinds is fixed here and there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from .errors import GpusimError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ORDER = ("driver", "model", "profile", "ciprofile", "card", "link", "gi", "ci", "fault")
# Everything printable except space and percent stays as it is; the file is meant to be read by people too.
_PLAIN = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")

Value = str | int


class Record(dict[str, str]):
    """One line of the state: its kind and its fields, in order.

    Attributes:
        kind: first word of the line, one of ORDER.
    """

    def __init__(self, kind: str, fields: Mapping[str, Value] | None = None, /, **more: Value) -> None:
        """Make a record; numbers become decimal text."""
        super().__init__({key: str(value) for key, value in {**(fields or {}), **more}.items()})
        self.kind = kind

    def number(self, key: str) -> int:
        """Return a field that holds a decimal number."""
        return int(self[key])

    def matches(self, **wanted: Value) -> bool:
        """Whether each named field has the value given."""
        return all(self.get(key) == str(value) for key, value in wanted.items())


class Machine:
    """All records of one simulated machine."""

    def __init__(self, records: Iterable[Record]) -> None:
        """Keep the records; see ORDER for the kinds."""
        self.records = list(records)

    @classmethod
    def parse(cls, text: str) -> Machine:
        """Read the text form.

        Raises:
            GpusimError: a line is not a record.
        """
        return cls(_parse_line(number, line) for number, line in enumerate(text.splitlines(), 1) if line)

    def render(self) -> str:
        """Return the text form, kinds in the fixed order."""
        ordered = sorted(self.records, key=lambda record: ORDER.index(record.kind))
        return "".join(f"{_render_record(record)}\n" for record in ordered)

    def all(self, kind: str, /, **wanted: Value) -> Iterator[Record]:
        """Yield the records of a kind whose fields have the values given."""
        return (record for record in self.records if record.kind == kind and record.matches(**wanted))

    def one(self, kind: str, /, **wanted: Value) -> Record | None:
        """Return the first such record, None when there is none."""
        return next(self.all(kind, **wanted), None)

    def remove(self, kind: str, /, **wanted: Value) -> int:
        """Drop such records and return how many there were."""
        kept = [record for record in self.records if not (record.kind == kind and record.matches(**wanted))]
        count = len(self.records) - len(kept)
        self.records = kept
        return count

    @property
    def driver(self) -> Record:
        """The one record about driver and library."""
        record = self.one("driver")
        if record is None:
            raise GpusimError("the state has no driver record; run: gpusim init --cards a100-sxm4-80gb:4")
        return record

    @property
    def cards(self) -> list[Record]:
        """The cards in order of index."""
        return list(self.all("card"))

    def card(self, index: int) -> Record:
        """Return a card by its index.

        Raises:
            GpusimError: there is no such card.
        """
        record = self.one("card", index=index)
        if record is None:
            raise GpusimError(f"there is no card {index}; this machine has cards 0 to {len(self.cards) - 1}")
        return record

    def model(self, card: Record) -> Record:
        """Return the model record of a card."""
        record = self.one("model", id=card["model"])
        if record is None:
            raise GpusimError(f"the state names model {card['model']} and does not describe it; run gpusim init again")
        return record


def _parse_line(number: int, line: str) -> Record:
    kind, *words = line.split(" ")
    pairs = [word.partition("=") for word in words]
    if kind not in ORDER or not all(separator for _, separator, _ in pairs):
        raise GpusimError(f"line {number} of the state is not a record; run gpusim init again")
    return Record(kind, {key: unquote(value) for key, _, value in pairs})


def _render_record(record: Record) -> str:
    return " ".join([record.kind, *(f"{key}={quote(value, safe=_PLAIN)}" for key, value in record.items())])
