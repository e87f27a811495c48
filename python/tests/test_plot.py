"""Timelines of memory as SVG."""

import os
import pickle
import xml.etree.ElementTree as ElementTree

import pytest

import freehold

MIB = 1 << 20


def event(action, address, size, time, line=1):
    frames = [
        {"filename": f"lib{os.sep}torch{os.sep}functional.py", "line": 5, "name": "linear"},
        {"filename": "train.py", "line": line, "name": "step"},
    ]
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time, "frames": frames}


def snapshot(events, live=0, reserved=0):
    blocks = [{"size": live, "state": "active_allocated"}]
    return {"segments": [{"device": 0, "total_size": reserved, "blocks": blocks}], "device_traces": [events]}


def drawn(plot):
    """Returns all texts of a picture, which is valid XML."""
    root = ElementTree.fromstring(plot.svg)
    return ["".join(element.itertext()) for element in root.iter() if element.tag.endswith(("text", "title"))]


def test_lines_follow_allocations_and_frees():
    events = [
        event("segment_alloc", 0, 20 * MIB, 1_000_000),
        event("alloc", 0, 4 * MIB, 1_000_000, line=7),
        event("alloc", 4 * MIB, 6 * MIB, 2_000_000, line=9),
        event("free_requested", 0, 4 * MIB, 3_000_000),
    ]
    plot = freehold.plot(snapshot(events, live=6 * MIB, reserved=20 * MIB))
    assert [point.live // MIB for point in plot.points] == [0, 0, 4, 10, 6]
    assert [point.reserved // MIB for point in plot.points] == [0, 20, 20, 20, 20]
    assert plot.peak.point == (1.0, 10 * MIB, 20 * MIB)
    assert plot.peak.places == [("train.py:9 step", 6 * MIB), ("train.py:7 step", 4 * MIB)]
    texts = drawn(plot)
    assert "10.0 MiB" in texts and "train.py:9 step" in texts
    assert plot._repr_svg_() == plot.svg
    assert repr(plot) == "<freehold.Plot of 5 points, 10.0 MiB live at the peak>"


def test_what_was_live_before_the_recording_counts():
    plot = freehold.plot(snapshot([event("alloc", 0, MIB, 5)], live=3 * MIB, reserved=8 * MIB))
    assert [point.live // MIB for point in plot.points] == [2, 3]
    assert plot.peak.places == [("before the recording", 2 * MIB), ("train.py:1 step", MIB)]


def test_a_peak_survives_thinning():
    events = []
    for index in range(10_000):
        size = 9 * MIB if index == 5_000 else MIB
        events += [event("alloc", 0, size, 2 * index), event("free_requested", 0, size, 2 * index + 1)]
    plot = freehold.plot(snapshot(events))
    assert plot.peak.point.live == 9 * MIB
    heights = [float(pair.split(",")[1]) for pair in plot.svg.split('<polygon points="')[1].split('"')[0].split()]
    assert min(heights) == pytest.approx(40)
    assert len(plot.svg) < 200_000


def test_a_timeline_of_freehold_is_drawn_though_its_end_is_missing(tmp_path):
    path = tmp_path / "run.json"
    count = '{"ph":"C","pid":1,"ts":%d,"name":"device memory, bytes","args":{"owned":%d,"released":0,"cached":1048576}}'
    path.write_text("[\n" + count % (0, MIB) + ",\n" + count % (10, 3 * MIB) + ',\n{"ph":"C","pi')
    plot = freehold.plot(path)
    assert [(point.live // MIB, point.reserved // MIB) for point in plot.points] == [(1, 2), (3, 4)]
    plot.save(tmp_path / "run.svg")
    assert (tmp_path / "run.svg").read_text() == plot.svg
    assert drawn(plot)[0].startswith("run.json: 3.0 MiB")


def test_names_are_text_only():
    events = [event("alloc", 0, MIB, 0)]
    events[0]["frames"][1]["name"] = "</text><script>alert(1)</script>"
    plot = freehold.plot(snapshot(events, live=MIB))
    assert "<script>" not in plot.svg
    assert "train.py:1 </text><script>alert(1)</script>" in drawn(plot)


def test_bad_input_is_one_sentence(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    evil, junk = tmp_path / "evil.pickle", tmp_path / "junk.pickle"
    evil.write_bytes(pickle.dumps(Evil()))
    junk.write_bytes(b"\x00\x01")
    with pytest.raises(ValueError, match="evil.pickle is neither a snapshot nor a timeline: the file names posix.mkdir"):
        freehold.plot(evil)
    assert not (tmp_path / "made").exists()
    with pytest.raises(ValueError, match="junk.pickle is neither a snapshot nor a timeline"):
        freehold.plot(junk)
    with pytest.raises(ValueError, match="no events of device 0: call torch.cuda.memory._record_memory_history"):
        freehold.plot(snapshot([]))
    with pytest.raises(TypeError, match="expected a snapshot of PyTorch"):
        freehold.plot(7)
