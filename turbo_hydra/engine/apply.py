# SPDX-License-Identifier: Apache-2.0
"""Carrying a plan out: group by group, each wholly or not at all."""

from __future__ import annotations

import itertools
from typing import Any

from turbo_hydra.engine.checks import Check
from turbo_hydra.engine.covering import identical
from turbo_hydra.engine.errors import OptimizationRollbackError, StrictStop
from turbo_hydra.engine.evidence import LiveReader
from turbo_hydra.engine.imports import Rule, finder
from turbo_hydra.engine.kinds import function_of, in_kind_of
from turbo_hydra.engine.members import PreparedMember, over
from turbo_hydra.engine.outcomes import GroupStatus, Outcome, begun
from turbo_hydra.engine.planned import Plan, PreparedGroup
from turbo_hydra.engine.rebinding import rebind
from turbo_hydra.engine.report import OptimizationReport
from turbo_hydra.engine.targets import Site
from turbo_hydra.engine.transaction import SiteChangedError, covered, take_back


class Engine:
    """One attempt: applies a plan, keeps what late members wait for, and can take everything back."""

    def __init__(self, plan: Plan, *, run_id: str, describe: dict[str, Any]) -> None:
        self.plan = plan
        self.outcomes = {id: begun(item) for id, item in plan.groups.items()}
        self.report = OptimizationReport(plan, self.outcomes, run_id=run_id, describe=describe)
        self._watching: list[Rule] = []
        self._installed: dict[tuple[int, str], list[tuple[PreparedMember, Any]]] = {}

    @property
    def pending(self) -> bool:
        """Whether a member of an applied group waits for its target to come into being."""
        return any(
            member.pending
            for outcome in self.outcomes.values()
            if outcome.status == "applied"
            for member in outcome.prepared.members
        )

    def apply(self) -> OptimizationReport:
        """Apply the groups of the plan in order, then rebind what else holds the originals.

        Raises
        ------
        OptimizationRollbackError
            If a group failed and a site could not be put back.
        KeyboardInterrupt
            After the group that was being applied was rolled back.
        """
        chosen = set(self.plan.execution_order)
        observers = [id for id in self.plan.execution_order if self.plan.groups[id].group.is_observer]
        for id in self.plan.groups:
            if id in chosen and id not in observers:
                self._apply_group(self.outcomes[id])
            elif id in self.plan.covered and self._outcome_of(id).status not in ("applied", "not_started"):
                self._uncover(id)  # in its turn, for what depends on it
        for id in list(self.plan.covered):
            if self._outcome_of(id).status != "applied":
                self._uncover(id)
        for id in observers:
            self._apply_group(self.outcomes[id])
        rebind(self.outcomes.values())
        self._verify()
        self._watch()
        return self.report

    def strict_stop(self) -> None:
        """End the run where an enabled group is not applied.

        Raises
        ------
        StrictStop
            Naming the groups and why.
        """
        missing = {
            id: outcome
            for id, outcome in self.outcomes.items()
            if outcome.status not in ("applied", "skipped") or "dependency_disabled" in outcome.prepared.reasons
        }
        if missing:
            named = ", ".join(f"'{id}' {item.status} ({item.reason})" for id, item in missing.items())
            raise StrictStop(f"optimization.strict is set and not every enabled group is applied: {named}", self.report)

    def _apply_group(self, outcome: Outcome) -> None:
        prepared = outcome.prepared
        if not self._dependencies_hold(prepared):
            outcome.give_up("blocked", "a group that it depends on is not applied")
            prepared.block("dependency_blocked")
            return
        try:
            writes = [write for member in prepared.members for write in self._plan_writes(member)]
            failed = next(filter(None, map(self._failed, prepared.members)), None)
            if failed is not None:  # what is made anew over another group's change may not fit
                outcome.give_up("blocked", failed.message)
                prepared.block(failed.code)
                return
            self._write(outcome, writes)
        except SiteChangedError as error:
            self._take_back(outcome, "blocked" if not outcome.transaction.writes else "rolled_back", str(error))
            if outcome.status == "blocked":
                prepared.block("site.changed")
        except BaseException as error:
            self._take_back(outcome, "rolled_back", f"{type(error).__name__}: {error}")
            if not isinstance(error, Exception):
                raise
        else:
            outcome.status = "applied"

    def _uncover(self, id: str) -> None:
        """Apply a group that was left out because another makes its changes, now that the other does not."""
        outcome = self.outcomes[id]
        outcome.prepared.decision = "apply"
        outcome.prepared.reasons = [item for item in outcome.prepared.reasons if not item.startswith("covered by ")]
        del self.plan.covered[id]
        self._apply_group(outcome)
        if outcome.status != "applied":
            self._take_back_dependents(id)

    def _outcome_of(self, id: str) -> Outcome:
        """What became of the changes of a group: of the group that covers it where one does."""
        return self.outcomes[self.plan.covered.get(id, id)]

    def _dependencies_hold(self, prepared: PreparedGroup) -> bool:
        # A covered group holds as long as the group that covers it has not come to nothing.
        return all(
            self._outcome_of(id).status == "applied"
            or (id in self.plan.covered and self._outcome_of(id).status == "not_started")
            for id in prepared.group.depends_on
        )

    def _plan_writes(self, member: PreparedMember) -> list[tuple[PreparedMember, Site, Any]]:
        """The writes of one member; none where an earlier group has made the identical change."""
        if member.site is None:
            return []
        below = self._installed.get(member.site.key, [])
        twin = next((item for item, _ in below if identical(item, member)), None)
        if twin is not None:
            member.share(twin)
            return []
        member.unshare()
        site = member.site
        if below:
            site = over(site, below[-1][1])
        count = self.plan.selection.counts and not member.member.observer
        value = member.build(site.raw, count=count)  # None where it does not fit: then a check of the member has failed
        writes = [(member, site, value)]
        for alias in member.alias_sites:
            above = self._installed.get(alias.key, [])
            of_kind = in_kind_of(alias.raw, function_of(value))
            writes.append((member, over(alias, above[-1][1]) if above else alias, of_kind))
        return writes

    def _write(self, outcome: Outcome, writes: list[tuple[PreparedMember, Site, Any]]) -> None:
        for member, site, value in writes:
            outcome.transaction.write(site, value)
            self._installed.setdefault(site.key, []).append((member, value))

    def _take_back(self, outcome: Outcome, status: GroupStatus, error: str) -> None:
        written = {write.site.key for write in outcome.transaction.writes}
        problems = outcome.transaction.rollback()
        for key in written:
            self._installed[key] = [
                item for item in self._installed.get(key, []) if item[0].group.id != outcome.prepared.group.id
            ]
        outcome.give_up("failed" if problems else status, error)
        if problems:
            raise OptimizationRollbackError(
                f"group '{outcome.prepared.group.id}' failed ({error}) and could not be rolled back: "
                + "; ".join(problems),
                self.report,
            )

    def _verify(self) -> None:
        """Read the statuses off the sites: a group whose site holds something else is not applied."""
        top = {key: items[-1][1] for key, items in self._installed.items() if items}
        for outcome in self.outcomes.values():
            for write in outcome.transaction.writes:
                expected = top.get(write.site.key, write.after)
                if write.site.read() is not expected:
                    outcome.status = "failed"
                    outcome.error = f"'{write.site.path}' no longer holds what was written"

    def _watch(self) -> None:
        """Wait for the modules that pending members live in."""
        names = {
            ".".join(parts[:count])
            for outcome in self.outcomes.values()
            if outcome.status == "applied"
            for member in outcome.prepared.members
            if member.pending and (parts := member.member.target.split("."))
            for count in range(1, len(parts))
        }
        for name in sorted(names):
            rule = Rule(name, "late targets", after=[self.bind_late])
            self._watching.append(rule)
            finder.add(rule)

    def bind_late(self, module: str) -> None:
        """Apply pending members whose target now exists in `module`.

        A group whose late target is not what the group was validated against is rolled back.

        Raises
        ------
        StrictStop
            If `strict` is set and a group had to be rolled back.
        """
        prefix = module + "."
        found = [
            (outcome, member)
            for outcome in self.outcomes.values()
            if outcome.status == "applied"
            for member in outcome.prepared.members
            if member.pending and member.member.target.startswith(prefix) and member.exists()
        ]
        reader = LiveReader()
        for _, member in found:  # all of them before the first write: what one writes is not another's original
            member.resolve_late(self.plan.selection, reader)
        for outcome, member in sorted(found, key=lambda item: item[0].prepared.group.is_observer):
            if outcome.status == "applied":  # a member before may have rolled the group back
                self._bind(outcome, member)
        if found:
            rebind(self.outcomes.values())
            if self.plan.selection.strict:
                self.strict_stop()

    def _bind(self, outcome: Outcome, member: PreparedMember) -> None:
        """Write a member of an applied group; where that cannot be, the group is rolled back."""
        failed = self._failed(member)
        if failed is None:
            if any(check.status == "fail" for check in member.checks):
                member.evidence = "forced"
            try:
                writes = self._plan_writes(member)
                failed = self._failed(member)  # what is made anew over another group's change may not fit
                if failed is None:
                    self._write(outcome, writes)
            except Exception as error:
                self._take_back_with_dependents(outcome, f"{type(error).__name__}: {error}")
                return
        if failed is not None:
            outcome.prepared.reasons.append(failed.code)
            self._take_back_with_dependents(outcome, failed.message)

    def _failed(self, member: PreparedMember) -> Check | None:
        """The first failed check that `force` does not lift."""
        forced = self.plan.selection.is_forced(member.group.id)
        failed = (check for check in member.checks if check.status == "fail" and not (forced and check.forceable))
        return next(failed, None)

    def _take_back_with_dependents(self, outcome: Outcome, error: str) -> None:
        id = outcome.prepared.group.id
        self._take_back_dependents(id)
        above = covered({id: outcome.transaction}).get(id)
        if above is None:
            self._take_back(outcome, "rolled_back", error)
            self._take_over(id)
        else:
            stays = f"'{above.site.path}' stays, since it is wrapped by {above.site.read()!r} by now"
            outcome.give_up("failed", f"{error}; {stays}")

    def _take_back_dependents(self, id: str) -> None:
        for other in reversed(self.outcomes.values()):
            if other.status == "applied" and id in other.prepared.group.depends_on:
                other.prepared.reasons.append("dependency_rolled_back")
                self._take_back_with_dependents(other, f"'{id}', which it depends on, was rolled back")

    def _take_over(self, id: str) -> None:
        """Let groups that shared a change of the group `id`, which is rolled back, make it themselves."""
        for left_out in [item for item, other in self.plan.covered.items() if other == id]:
            self._uncover(left_out)
            for member in self.outcomes[left_out].prepared.members:
                if member.pending and member.exists():
                    member.resolve_late(self.plan.selection, LiveReader())
                    self._bind(self.outcomes[left_out], member)
        for outcome in self.outcomes.values():
            for member in outcome.prepared.members:
                if member.shared_with == id:
                    self._bind(outcome, member)

    def undo(self) -> list[str]:
        """Take all groups back, the last first.

        Returns
        -------
        list[str]
            What was left alone because somebody else has written over it since, one sentence each.
        """
        left: list[str] = []
        while self._watching:
            finder.remove(self._watching.pop())
        transactions = {id: outcome.transaction for id, outcome in self.outcomes.items()}
        shared = [
            (id, member, member.shared_with)
            for id, outcome in self.outcomes.items()
            for member in outcome.prepared.members
            if member.shared_with is not None
        ]
        for id, write in covered(transactions, [(id, maker) for id, _, maker in shared]).items():
            del transactions[id]
            outcome = self.outcomes[id]
            outcome.status = "blocked"
            outcome.error = f"'{write.site.path}' now holds {write.site.read()!r}, which is not ours to remove"
            left.append(outcome.error)
        problems = take_back(transactions)
        left += itertools.chain.from_iterable(found.values() for found in problems.values())
        for id, member, maker in shared:
            if maker in problems:
                keys = [site.key for site in member.sites if site.key in problems[maker]]
                problems.setdefault(id, {}).update({key: problems[maker][key] for key in keys})
        for id in transactions:
            outcome = self.outcomes[id]
            remains = next(iter(problems.get(id, {}).values()), None)
            if remains is not None:
                outcome.status, outcome.error = "failed", remains
            elif outcome.status == "applied" or id in problems:
                outcome.status = "rolled_back"
        for outcome in reversed(list(self.outcomes.values())):
            outcome.prepared.uninstall_imports()
        return left
