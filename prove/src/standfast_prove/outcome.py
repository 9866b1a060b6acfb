"""The result of a campaign."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Outcome:
    """The counts of a campaign, and one sentence for each violation. Without violations the campaign has passed."""

    name: str = ""
    seen: dict[str, int] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)

    def count(self, what: str, number: int = 1) -> None:
        self.seen[what] = self.seen.get(what, 0) + number

    def refuse(self, wrong: object, sentence: str) -> None:
        """Note a violation unless `wrong` is empty or false."""
        if wrong:
            self.bad.append(f"{sentence}: {str(wrong)[-600:]}")

    def add(self, other: Outcome) -> None:
        for what, number in other.seen.items():
            self.count(what, number)
        self.bad += other.bad

    @property
    def figures(self) -> str:
        return ", ".join(f"{number:,} {what}" for what, number in self.seen.items())

    def __str__(self) -> str:
        return f"{self.name}: {self.figures}" + "".join(f"\n    BAD {sentence}" for sentence in self.bad)
