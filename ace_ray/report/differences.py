"""A comparison of two runs as text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from ace_ray.aggregate.table import Cell, Table, label, p_text
from ace_ray.compare import LEVEL, Change, Comparison, Difference, name_of
from ace_ray.report.escape import clean
from ace_ray.report.text import terminal

_MOST: Final = 12  # lines of one kind before the rest is counted


def comparison_text(found: Comparison) -> str:
    """Return what changed: one line where the measurements are identical."""
    if found.identical:
        return _identical(found)
    lines = [f"{found.run_a} -> {found.run_b}"]
    lines += [f"configuration  {_change(c)}" for c in found.config] or ["configuration  the same"]
    lines += [f"versions       {_change(c)}" for c in found.versions]
    lines += [f"logits         {line}" for line in _logits(found.logits)]
    if found.differences:
        lines += ["", terminal(differences_table(found)), _count(found.differences)]
    for title, names in (("only in", found.removed), ("only in", found.added)):
        run = found.run_a if names is found.removed else found.run_b
        lines += [f"{title} {run}: {clean(name)}" for name in names[:_MOST]]
        if len(names) > _MOST:
            lines.append(f"{title} {run}: {len(names) - _MOST} more")
    return "\n".join([*lines, *(f"note: {clean(note)}" for note in found.notes)])


def differences_table(found: Comparison) -> Table:
    """Return the measured differences as a table, ECE in per cent."""
    models = {d.model for d in found.differences}
    rows = []
    for d in found.differences:
        own = [d.model if len(models) > 1 else "", name_of(d.calibrator, d.method), d.setting]
        i = d.interval
        known = i.low is not None and i.high is not None
        span = f"[{100 * (i.low or 0):+.3f}, {100 * (i.high or 0):+.3f}]" if known else ""
        p = "exact" if i.deterministic else "" if i.p is None else p_text(i.p)
        rows.append(
            [
                label(f"{' '.join(word for word in own if word)}, {d.group}"),
                Cell(100 * d.before, f"{100 * d.before:.2f}"),
                Cell(100 * d.after, f"{100 * d.after:.2f}"),
                Cell(100 * i.change, f"{100 * i.change:+.3f}"),
                Cell(span, span),
                Cell(i.p, p),
                Cell(i.verdict, i.verdict),
            ]
        )
    notes = [
        f"{LEVEL:.0%} intervals: Welch over seeds; they speak of the draw of the hard set, not of "
        "the test samples",
    ]
    if any(d.interval.deterministic for d in found.differences):
        notes.append("exact: neither run varies over its seeds, the difference is what it is")
    if any(d.interval.verdict == "not tested" for d in found.differences):
        notes.append("not tested: a run has one seed")
    columns = ["series", found.run_a, found.run_b, "change", f"{LEVEL:.0%} interval", "p", "ECE"]
    return Table("compare", "ECE (%)", columns, rows, notes)


def _identical(found: Comparison) -> str:
    if found.run_a == found.run_b:
        return f"{found.run_a} is compared with itself: identical"
    other = [c.key for c in (*found.config, *found.versions)]
    rest = f"; what differs: {', '.join(map(clean, other))}" if other else ""
    return f"{found.run_a} and {found.run_b} are identical in every measurement{rest}"


def _change(change: Change) -> str:
    def shown(value: Any) -> str:
        text = "none" if value is None else clean(str(value))
        return text if len(text) <= 60 else text[:57] + "..."

    return f"{clean(change.key)}: {shown(change.before)} -> {shown(change.after)}"


def _logits(changed: Sequence[Change]) -> list[str]:
    if not changed:
        return ["the same tables"]
    lines = []
    for change in changed[:_MOST]:
        if change.before is None or change.after is None:
            verb = "added" if change.before is None else "removed"
            lines.append(f"{verb}: {clean(change.key)}")
        else:
            keys = f"{change.before[:12]} -> {change.after[:12]}"
            lines.append(f"changed: {clean(change.key)} ({keys})")
    more = len(changed) - _MOST
    return [*lines, f"{more} more differ"] if more > 0 else lines


def _count(differences: Sequence[Difference]) -> str:
    counts = Counter(d.interval.verdict for d in differences)
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    return f"{len(differences)} compared: {said}"
