# SPDX-License-Identifier: Apache-2.0
"""Which rows a sweep has, and which of them are compared with which."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from turbo_hydra.sweep.settings import AblationError

AGAIN = "again"


@dataclass(frozen=True)
class Toggle:
    """A group that rows switch, and what is known of it.

    Parameters
    ----------
    id : str
        The group.
    depends_on : tuple of str
        Those among the other toggles without which it is not applied, directly or not.
    numerics : str
        The class that it declares.
    memory : str
        What it says of memory.
    """

    id: str
    depends_on: tuple[str, ...] = ()
    numerics: str = "close"
    memory: str = "none"


@dataclass(frozen=True)
class Row:
    """One choice of groups that are on, run as often as there are rounds.

    Parameters
    ----------
    name : str
        For people; unique in a sweep.
    on : tuple of str
        Toggles that are on; all others are off.
    again : bool
        Whether it repeats the baseline, for the noise.
    note : str
        What the row does beside what its name says.
    """

    name: str
    on: tuple[str, ...]
    again: bool = False
    note: str = ""


@dataclass(frozen=True)
class Contrast:
    """What a group, or two together, are worth: a combination of rows, in every round.

    Parameters
    ----------
    name : str
        The group's id; of an interaction, both.
    groups : tuple of str
        The groups whose classes hold and whose hits are asked for.
    weights : mapping of str to float
        Row to its factor: the sum over log step times is the log of the gain. A gain of 1.1 is a tenth more steps in
        the same time.
    pairs : tuple of (str, str)
        Rows with and without, whose losses are compared.
    kind : {"group", "interaction", "again"}
        What is judged.
    """

    name: str
    groups: tuple[str, ...]
    weights: Mapping[str, float]
    pairs: tuple[tuple[str, str], ...]
    kind: str = "group"


@dataclass(frozen=True)
class Design:
    """Rows, what is compared, and the row that others are shown against."""

    strategy: str
    toggles: tuple[Toggle, ...]
    rows: tuple[Row, ...]
    contrasts: tuple[Contrast, ...]
    baseline: str
    notes: tuple[str, ...] = field(default=())

    def row(self, name: str) -> Row:
        """The row of a name."""
        return next(row for row in self.rows if row.name == name)


def design(strategy: str, toggles: Sequence[Toggle], rows: Sequence[Sequence[str]] = ()) -> Design:
    """Make the rows of a strategy.

    Parameters
    ----------
    strategy : str
        One of `settings.STRATEGIES` but `bisect`, whose rows depend on what is found.
    toggles : sequence of Toggle
        In the order in which `cumulative` adds them; each after those that it depends on.
    rows : sequence of sequence of str
        For `list`.

    Raises
    ------
    AblationError
        If there is nothing to switch, or a listed row cannot be.
    """
    if not toggles:
        raise AblationError(
            "there is no group to switch: the config has no optimization group on; name some by ablation.groups"
        )
    return _Maker(toggles).make(strategy, rows)


class _Maker:
    def __init__(self, toggles: Sequence[Toggle]) -> None:
        self._toggles = _after_dependencies(toggles)
        self._ids = tuple(toggle.id for toggle in self._toggles)
        self._needs = {toggle.id: toggle.depends_on for toggle in self._toggles}
        self._rows: dict[tuple[str, ...], Row] = {}
        self._contrasts: list[Contrast] = []

    def make(self, strategy: str, rows: Sequence[Sequence[str]]) -> Design:
        baseline = getattr(self, f"_{strategy}")(rows)
        again = Row(f"{baseline} ({AGAIN})", self._named(baseline).on, again=True, note="the baseline once more")
        self._contrasts = [_of_both(contrast, baseline, again.name) for contrast in self._contrasts]
        self._contrasts.append(
            Contrast(
                again.name,
                (),
                {baseline: 1.0, again.name: -1.0},
                ((again.name, baseline),),
                "again",
            )
        )
        made = tuple(self._rows.values())
        first = self._named(baseline)
        ordered = (first, again, *(row for row in made if row is not first))
        return Design(strategy, self._toggles, ordered, tuple(self._contrasts), baseline)

    # Strategies; each returns the name of its baseline

    def _leave_one_out(self, rows: Sequence[Sequence[str]]) -> str:
        every = self._row(self._ids, "all")
        self._row((), "none")
        for id in self._ids:
            also = self._dependents(id)
            rest = self._row(
                [other for other in self._ids if other != id and other not in also],
                f"without {id}",
                f"also without {', '.join(also)}, which needs it" if also else "",
            )
            self._compare((id, *also), every, rest)
        return every

    def _one_at_a_time(self, rows: Sequence[Sequence[str]]) -> str:
        none = self._row((), "none")
        for id in self._ids:
            needed = self._needs[id]
            without = self._row(needed, f"only {', '.join(needed)}") if needed else none
            note = f"with {', '.join(needed)}, which it needs; compared with the row of those" if needed else ""
            self._compare((id,), self._row((*needed, id), f"only {id}", note), without)
        return none

    def _cumulative(self, rows: Sequence[Sequence[str]]) -> str:
        before = none = self._row((), "none")
        for count, id in enumerate(self._ids, start=1):
            row = self._row(self._ids[:count], f"+ {id}", f"{count} groups on")
            self._compare((id,), row, before)
            before = row
        return none

    def _pairs(self, rows: Sequence[Sequence[str]]) -> str:
        none = self._one_at_a_time(rows)
        for one, other in itertools.combinations(self._ids, 2):
            if one in self._needs[other] or other in self._needs[one]:
                continue  # the one is never on without the other: what they do together is the other's own gain
            both = self._closed((one, other))
            shared = [id for id in both if id in self._closed((one,)) and id in self._closed((other,))]
            row = self._row(both, f"only {one} and {other}")
            alone = [self._row(self._closed((id,)), f"only {id}") for id in (one, other)]
            base = self._row(shared, f"only {', '.join(shared)}") if shared else none
            self._contrasts.append(
                Contrast(
                    f"{one} and {other}",
                    (one, other),
                    {alone[0]: 1.0, alone[1]: 1.0, base: -1.0, row: -1.0},
                    ((row, base),),
                    "interaction",
                )
            )
        return none

    def _factorial(self, rows: Sequence[Sequence[str]]) -> str:
        none = self._row((), "none")
        for size in range(1, len(self._ids) + 1):
            for on in itertools.combinations(self._ids, size):
                if set(self._closed(on)) == set(on):
                    self._row(on, "all" if size == len(self._ids) else f"only {' and '.join(on)}")
        for id in self._ids:
            pairs = [
                (row.name, self._rows[rest].name)
                for on, row in self._rows.items()
                if id in on and (rest := tuple(other for other in on if other != id)) in self._rows
            ]
            weights: dict[str, float] = {}
            for on_name, off_name in pairs:
                weights[off_name] = weights.get(off_name, 0.0) + 1 / len(pairs)
                weights[on_name] = weights.get(on_name, 0.0) - 1 / len(pairs)
            self._contrasts.append(Contrast(id, (id,), weights, tuple(pairs)))
        return none

    def _list(self, rows: Sequence[Sequence[str]]) -> str:
        if len(rows) < 2:
            raise AblationError(
                "'ablation.rows' needs two rows or more: the first is what the others are compared with"
            )
        made = []
        for listed in rows:
            unknown = [id for id in listed if id not in self._ids]
            if unknown:
                known = ", ".join(self._ids)
                raise AblationError(
                    f"'ablation.rows' names '{unknown[0]}', which is no group to switch; those are {known}"
                )
            missing = [id for id in self._closed(listed) if id not in listed]
            if missing:
                raise AblationError(f"the row {list(listed)} lacks '{missing[0]}', which a group in it needs")
            if tuple(self._sorted(listed)) in self._rows:
                raise AblationError(f"'ablation.rows' has the row {list(listed)} twice")
            made.append(self._row(listed, ", ".join(listed) or "none"))
        for name in made[1:]:
            self._compare_lists(name, made[0])
        return made[0]

    def _compare_lists(self, name: str, baseline: str) -> None:
        on, base = self._named(name).on, self._named(baseline).on
        changed = tuple(id for id in self._ids if (id in on) != (id in base))
        if all(id in base for id in changed):  # only switches off: what is judged is what was left out
            self._contrasts.append(
                Contrast(", ".join(changed), changed, {name: 1.0, baseline: -1.0}, ((baseline, name),))
            )
            return
        self._contrasts.append(Contrast(name, changed, {baseline: 1.0, name: -1.0}, ((name, baseline),)))

    # Within

    def _compare(self, groups: tuple[str, ...], with_: str, without: str) -> None:
        self._contrasts.append(Contrast(groups[0], groups, {without: 1.0, with_: -1.0}, ((with_, without),)))

    def _row(self, on: Iterable[str], name: str, note: str = "") -> str:
        """Make a row unless there is one with the same groups; the name of the one that there is."""
        key = tuple(self._sorted(on))
        return self._rows.setdefault(key, Row(name, key, note=note)).name

    def _sorted(self, on: Iterable[str]) -> list[str]:
        return sorted(set(on), key=self._ids.index)

    def _named(self, name: str) -> Row:
        return next(row for row in self._rows.values() if row.name == name)

    def _dependents(self, id: str) -> list[str]:
        return [other for other in self._ids if id in self._needs[other]]

    def _closed(self, on: Iterable[str]) -> list[str]:
        on = list(on)
        return self._sorted([*on, *(needed for id in on for needed in self._needs[id])])


def _of_both(contrast: Contrast, baseline: str, again: str) -> Contrast:
    """Compare with both runs of the baseline: every group is, so a run that was disturbed would be in every verdict."""
    weights = dict(contrast.weights)
    if baseline not in weights:
        return contrast
    weights[baseline] = weights[again] = weights[baseline] / 2
    return dataclasses.replace(contrast, weights=weights)


def _after_dependencies(toggles: Sequence[Toggle]) -> tuple[Toggle, ...]:
    """The same toggles, each after those that it needs, otherwise as given."""
    from turbo_hydra.engine.order import execution_order

    by_id = {toggle.id: toggle for toggle in toggles}
    order, circle = execution_order(by_id, {toggle.id: toggle.depends_on for toggle in toggles})
    if circle:
        raise AblationError(f"these groups depend on one another in a circle: {', '.join(circle)}")
    return tuple(by_id[id] for id in order)


def factorial_rows(toggles: Sequence[Toggle]) -> int:
    """How many rows a factorial of groups has at most, the baseline's second included, without making them."""
    return int(2 ** len(toggles)) + 1
