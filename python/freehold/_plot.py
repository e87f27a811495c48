"""A timeline of device memory as SVG: what was live and what was reserved."""

from __future__ import annotations

import html
import json
import os
import pickle
from collections import defaultdict
from typing import Any, NamedTuple, Union

WIDTH, HEIGHT = 860, 300
LEFT, RIGHT, TOP, BOTTOM = 84, 16, 40, 44
COLUMNS = 1200
"""At most so many points are drawn of each line: of more, the highest of each column."""

_LIVE, _RESERVED = "#2563eb", "#94a3b8"
_RESERVING = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_ALLOCATING = {"alloc": 1, "free_requested": -1}


class Point(NamedTuple):
    seconds: float
    live: int
    reserved: int


class Peak(NamedTuple):
    """What was live when most was, by the place that allocated it."""

    point: Point
    places: list[tuple[str, int]]


class Plot:
    """A timeline of memory. A notebook shows it; `save` writes it, and `svg` is its text."""

    def __init__(self, title: str, points: list[Point], places: list[tuple[str, int]]) -> None:
        self.points = points
        self.peak = Peak(max(points, key=lambda point: point.live), places)
        self.svg = _draw(title, points, self.peak)

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the SVG to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg)

    def __repr__(self) -> str:
        return f"<freehold.Plot of {len(self.points)} points, {_size(self.peak.point.live)} live at the peak>"


def plot(snapshot: Any, *, device: int = 0) -> Plot:
    """Returns a timeline of live and reserved memory.

    `snapshot` is what `torch.cuda.memory._snapshot()` returns, the path of a file of `_dump_snapshot`, or the path of a timeline
    that `freehold run --record` wrote. A snapshot has a timeline only after `torch.cuda.memory._record_memory_history()`.
    """
    title = "device memory"
    if isinstance(snapshot, (str, os.PathLike)):
        title = os.path.basename(os.fspath(snapshot))
        snapshot = _read(snapshot)
    if isinstance(snapshot, dict) and "device_traces" in snapshot:
        return Plot(f"{title}, device {device}", *_of_snapshot(snapshot, device))
    if isinstance(snapshot, list):
        return Plot(title, _of_timeline(snapshot), [])
    raise TypeError("expected a snapshot of PyTorch, the path of one, or the path of a timeline of `freehold run --record`")


class _Numbers(pickle.Unpickler):
    """Reads a pickle of plain values, and refuses one that would run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise ValueError(f"the file names {module}.{name}, which is not part of a snapshot")


def _read(path: Union[str, os.PathLike[str]]) -> Any:
    with open(path, "rb") as file:
        start = file.read(1)
        file.seek(0)
        try:
            return _events(file.read().decode("utf-8")) if start in (b"[", b"{") else _Numbers(file).load()
        except (ValueError, EOFError, pickle.UnpicklingError, KeyError, IndexError, AttributeError) as error:
            raise ValueError(f"{os.fspath(path)} is neither a snapshot nor a timeline: {error}") from None


def _events(text: str) -> list[dict[str, Any]]:
    try:
        events = json.loads(text)
    except ValueError:
        # The process was killed while it wrote: the last line and the closing bracket are missing.
        events = json.loads(text[: text.rindex("\n")].rstrip().rstrip(",") + "]")
    return events["traceEvents"] if isinstance(events, dict) else events


def _of_snapshot(snapshot: dict[str, Any], device: int) -> tuple[list[Point], list[tuple[str, int]]]:
    traces = snapshot["device_traces"]
    trace = traces[device] if 0 <= device < len(traces) else []
    if not trace:
        raise ValueError(
            f"the snapshot has no events of device {device}: call torch.cuda.memory._record_memory_history() before the work"
        )
    segments = [segment for segment in snapshot["segments"] if segment["device"] == device]
    # The trace may begin in the middle: what was live then is what is live at the end, without what came since.
    live = sum(block["size"] for segment in segments for block in segment["blocks"] if block["state"] == "active_allocated")
    reserved = sum(segment["total_size"] for segment in segments)
    live -= sum(_ALLOCATING.get(event["action"], 0) * event["size"] for event in trace)
    reserved -= sum(_RESERVING.get(event["action"], 0) * event["size"] for event in trace)
    start = trace[0].get("time_us", 0)
    points = [Point(0.0, live, reserved)]
    for event in trace:
        live += _ALLOCATING.get(event["action"], 0) * event["size"]
        reserved += _RESERVING.get(event["action"], 0) * event["size"]
        points.append(Point((event.get("time_us", 0) - start) / 1e6, live, reserved))
    at = max(range(len(points)), key=lambda index: points[index].live)
    return points, _places(trace[:at], points[at].live)


def _places(trace: list[dict[str, Any]], live: int) -> list[tuple[str, int]]:
    """Returns the bytes of each place whose blocks are live after these events, the most first."""
    blocks: dict[int, tuple[str, int]] = {}
    for event in trace:
        if event["action"] == "alloc":
            blocks[event["addr"]] = (_place(event.get("frames") or []), event["size"])
        elif event["action"] == "free_requested":
            blocks.pop(event["addr"], None)
    totals: dict[str, int] = defaultdict(int)
    for place, size in blocks.values():
        totals[place] += size
    earlier = live - sum(totals.values())
    if earlier > 0:
        totals["before the recording"] += earlier
    return sorted(totals.items(), key=lambda each: -each[1])


def _place(frames: list[dict[str, Any]]) -> str:
    """Returns the program's line that allocated: the innermost frame of Python outside of PyTorch."""
    python = [frame for frame in frames if frame["filename"].endswith(".py")]
    own = [frame for frame in python if f"{os.sep}torch{os.sep}" not in frame["filename"]]
    for frame in own or python:
        return f"{os.path.basename(frame['filename'])}:{frame['line']} {frame['name']}"
    return "no stack recorded"


def _of_timeline(events: list[dict[str, Any]]) -> list[Point]:
    counters = [event for event in events if event.get("ph") == "C" and "owned" in event.get("args", {})]
    if not counters:
        raise ValueError("the timeline has no counts of memory: it was recorded before any allocation")
    start = counters[0]["ts"]
    points = []
    for event in counters:
        values = event["args"]
        reserved = values["owned"] + values.get("released", 0) + values.get("cached", 0)
        points.append(Point((event["ts"] - start) / 1e6, values["owned"], reserved))
    return points


def _thinned(points: list[Point], end: float) -> list[Point]:
    """Returns the highest points of each column, so that no peak is lost."""
    if len(points) <= COLUMNS:
        return points
    columns: dict[int, Point] = {}
    for point in points:
        column = int(point.seconds / end * (COLUMNS - 1)) if end else 0
        known = columns.get(column)
        if known is None:
            columns[column] = point
        else:
            columns[column] = Point(known.seconds, max(known.live, point.live), max(known.reserved, point.reserved))
    return [columns[column] for column in sorted(columns)]


def _draw(title: str, points: list[Point], peak: Peak) -> str:
    end = max(point.seconds for point in points) or 1.0
    top = max(max(point.live, point.reserved) for point in points) or 1
    unit = _unit(top)
    drawn = _thinned(points, end)
    rows = peak.places[:6]
    height = HEIGHT + (24 + 18 * len(rows) if rows else 0)

    def x(seconds: float) -> float:
        return LEFT + seconds / end * (WIDTH - LEFT - RIGHT)

    def y(size: float) -> float:
        return HEIGHT - BOTTOM - size / top * (HEIGHT - TOP - BOTTOM)

    def steps(value: Any) -> str:
        path, before = [], None
        for point in drawn:
            if before is not None:
                path.append(f"{x(point.seconds):.1f},{y(before):.1f}")
            before = value(point)
            path.append(f"{x(point.seconds):.1f},{y(before):.1f}")
        path.append(f"{x(end):.1f},{y(value(drawn[-1])):.1f}")
        return " ".join(path)

    live = steps(lambda point: point.live)
    base = y(0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#334155" role="img">',
        f"<title>{html.escape(title)}: {_size(peak.point.live)} live at the peak</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="600">{html.escape(title)}</text>',
        f'<text x="{WIDTH - RIGHT - 66}" y="20" text-anchor="end" fill="{_LIVE}">live</text>',
        f'<text x="{WIDTH - RIGHT}" y="20" text-anchor="end" fill="#64748b">reserved</text>',
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        at = y(top * share)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#e2e8f0"/>')
        label = f"{top * share / unit[1]:.3g} {unit[0]}"
        parts.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
    for share in (0, 0.25, 0.5, 0.75, 1):
        anchor = "start" if share == 0 else "end" if share == 1 else "middle"
        parts.append(
            f'<text x="{x(end * share):.1f}" y="{base + 20:.1f}" text-anchor="{anchor}">{_duration(end * share)}</text>'
        )
    parts.append(
        f'<polygon points="{x(0):.1f},{base:.1f} {live} {x(end):.1f},{base:.1f}" fill="{_LIVE}" fill-opacity="0.18"/>'
    )
    parts.append(
        f'<polyline points="{steps(lambda point: point.reserved)}" fill="none" stroke="{_RESERVED}" stroke-width="1.5"/>'
    )
    parts.append(f'<polyline points="{live}" fill="none" stroke="{_LIVE}" stroke-width="1.5"/>')
    mark = peak.point
    anchor = "end" if x(mark.seconds) > WIDTH / 2 else "start"
    side = -8 if anchor == "end" else 8
    parts.append(f'<circle cx="{x(mark.seconds):.1f}" cy="{y(mark.live):.1f}" r="3.5" fill="{_LIVE}"/>')
    parts.append(
        f'<text x="{x(mark.seconds) + side:.1f}" y="{max(y(mark.live) - 6, TOP - 4):.1f}" text-anchor="{anchor}" fill="{_LIVE}" '
        f'font-weight="600">{_size(mark.live)}</text>'
    )
    if rows:
        parts.append(f'<text x="{LEFT}" y="{HEIGHT + 8}" font-weight="600">live at the peak</text>')
    for index, (place, size) in enumerate(rows):
        line = HEIGHT + 28 + 18 * index
        parts.append(f'<text x="{LEFT + 84}" y="{line}" text-anchor="end">{_size(size)}</text>')
        parts.append(f'<text x="{LEFT + 96}" y="{line}">{html.escape(place)}</text>')
    parts.append("</svg>")
    return "\n".join(parts)


def _unit(size: float) -> tuple[str, int]:
    for name, bytes_of in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= bytes_of:
            return name, bytes_of
    return "B", 1


def _size(size: int) -> str:
    name, bytes_of = _unit(size)
    return f"{size / bytes_of:.1f} {name}" if bytes_of > 1 else f"{size} B"


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 or seconds == 0 else f"{seconds * 1000:.3g} ms"
