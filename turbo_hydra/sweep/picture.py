# SPDX-License-Identifier: Apache-2.0
"""The picture of a sweep: what each group is worth, a bar with its interval for each."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turbo_hydra.engine.errors import TurboHydraError
from turbo_hydra.sweep.tables import METRIC

# Okabe and Ito's colours, which people with any colour vision tell apart; in grey the shapes do.
STYLES = {
    "keep": ("#009E73", "o", ""),
    "drop": ("#D55E00", "v", "//"),
    "undecided": ("#999999", "s", ".."),
    "broken": ("#CC79A7", "X", "xx"),
    "same": ("#56B4E9", "D", ""),
    "differs": ("#E69F00", "D", "\\\\"),
    "gains together": ("#009E73", "o", ""),
    "costs together": ("#D55E00", "v", "//"),
    "adds up": ("#0072B2", "P", ""),
}
LABELS = {"same": "baseline twice", "differs": "baseline twice: differs"}
FILES = ("ablation.svg", "ablation.png")


class PictureError(TurboHydraError):
    """The package that draws is not installed."""


def draw(data: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the picture, as SVG and PNG.

    Raises
    ------
    PictureError
        If matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise PictureError(
            "there is no picture, since matplotlib is not installed: pip install 'turbo_hydra[plot]' "
            "and run turbo-opt report again"
        )
    bars = _bars(data)
    if not bars:
        return []
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    settings: Any = {
        "font.family": "sans-serif",
        "font.size": 9,
        "hatch.linewidth": 0.6,
        "svg.fonttype": "none",
        "svg.hashsalt": "turbo_hydra",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
    }
    with rc_context(settings):
        figure = Figure(figsize=(6.8, 1.25 + 0.36 * len(bars)), layout="constrained")
        FigureCanvasAgg(figure)
        _fill(figure, bars, data)
        paths = [folder / name for name in FILES]
        for path in paths:
            figure.savefig(path, dpi=200, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def _bars(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Verdicts with a gain: groups by gain, largest first, then interactions, then the baseline twice."""
    order = {"group": 0, "interaction": 1, "again": 2}
    known = [verdict for verdict in data["verdicts"] if verdict["gain"]]
    return sorted(known, key=lambda verdict: (order[verdict["kind"]], -verdict["gain"]["value"]))


def _fill(figure: Any, bars: list[Mapping[str, Any]], data: Mapping[str, Any]) -> None:
    from matplotlib.lines import Line2D

    axes = figure.subplots()
    places = list(range(len(bars)))[::-1]
    limit = _limits(bars)
    for place, verdict in zip(places, bars, strict=True):
        gain = verdict["gain"]
        colour, marker, hatch = STYLES[verdict["verdict"]]
        middle = 100 * (gain["value"] - 1)
        axes.barh(
            place, middle, height=0.62, color=colour, alpha=0.35, edgecolor=colour, linewidth=0.8, hatch=hatch, zorder=2
        )
        if gain["low"] is not None:
            low, high = 100 * (gain["low"] - 1), 100 * (gain["high"] - 1)
            axes.plot([low, high], [place, place], color=colour, linewidth=1.6, solid_capstyle="butt", zorder=3)
            for end, edge, arrow in ((low, limit[0], "<"), (high, limit[1], ">")):
                if limit[0] <= end <= limit[1]:
                    axes.plot([end, end], [place - 0.13, place + 0.13], color=colour, linewidth=1.6, zorder=3)
                else:  # it goes on beyond the picture
                    axes.plot(edge, place, marker=arrow, color=colour, markersize=6, clip_on=False, zorder=3)
        axes.plot(middle, place, marker=marker, color=colour, markersize=6, markeredgecolor="white", zorder=4)
        axes.annotate(
            f"{middle:+.1f} %".replace("-", "\N{MINUS SIGN}"),
            (1.0, place),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            ha="left",
            fontweight="bold" if verdict["verdict"] == "keep" else "normal",
            color="#333333",
            fontsize=8,
        )
    axes.axvline(0, color="#333333", linewidth=1.0, zorder=1)
    if any(verdict["kind"] == "again" for verdict in bars) and len(bars) > 1:
        axes.axhline(0.5, color="#cccccc", linewidth=0.8, zorder=0)
    axes.set_yticks(places, [_label(verdict) for verdict in bars])
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(*limit)
    axes.set_ylim(-0.6, len(bars) - 0.4)
    axes.grid(axis="x", color="#e6e6e6", linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    axes.set_xlabel(f"gain of the group, by {METRIC[data['metric']]} (%), with 95 % interval")
    axes.set_title(
        f"What each group is worth: {data['model']}, {data['strategy'].replace('_', ' ')}", loc="left", fontsize=10
    )
    words = list(dict.fromkeys(verdict["verdict"] for verdict in bars))
    handles = [
        Line2D(
            [], [], color=STYLES[word][0], marker=STYLES[word][1], linewidth=1.6, markersize=6, markeredgecolor="white"
        )
        for word in words
    ]
    figure.legend(
        handles,
        [LABELS.get(word, word) for word in words],
        loc="outside lower center",
        ncols=min(len(words), 5),
        frameon=False,
        fontsize=8,
        handlelength=1.8,
        columnspacing=1.6,
    )


def _limits(bars: list[Mapping[str, Any]]) -> tuple[float, float]:
    ends = [0.0]
    for verdict in bars:
        gain = verdict["gain"]
        ends += [100 * (number - 1) for number in (gain["value"], gain["low"], gain["high"]) if number is not None]
    # A first look at a noisy machine has intervals of hundreds of percent: bars must stay readable.
    widest = max(10.0, 1.6 * max(abs(100 * (verdict["gain"]["value"] - 1)) for verdict in bars))
    low, high = max(min(ends), -widest), min(max(ends), widest)
    pad = 0.05 * (high - low)
    return low - pad, high + pad


def _label(verdict: Mapping[str, Any]) -> str:
    if verdict["kind"] == "again":
        return "baseline, run twice"
    others = verdict["groups"][1:] if verdict["kind"] == "group" else []
    return str(verdict["name"]) + (f"\n+ {', '.join(others)}" if others else "")
