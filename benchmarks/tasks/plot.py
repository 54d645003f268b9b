"""What was lost over how fast it is, a panel for each task, as SVG."""

import html

PANEL, HIGH, LEFT, TOP, BELOW = 360, 240, 58, 44, 34
KINDS = ("octavo", "ONNX Runtime", "OpenVINO")
COLOURS = ("#1b6ca8", "#c0504d", "#6a8f3c")
LEAST, MOST = 0.01, 100  # percent: what the axis shows as nothing, and as all


def text(x, y, words, size=11, anchor="start", colour="#222"):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{html.escape(words)}</text>'


def line(x1, y1, x2, y2, colour="#ccc"):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def beside(points):
    """[(x, y of the label, ...)]: below those that it would cover."""
    taken = []
    for x, y, words, colour in sorted(points):
        wide, at = 5 * len(words), y
        while any(abs(at - other) < 9 and x < right and left < x + wide for left, right, other in taken):
            at += 9
        taken.append((x, x + wide, at))
        yield x, at, words, colour


def panel(row, left, top):
    import math

    inner, high = PANEL - LEFT - 14, HIGH - TOP - BELOW
    parts = [text(left + LEFT, top + 18, f"{row['task']}: {row['metric']}", 13), text(left + LEFT, top + 33, row["model"][:60], 9, colour="#666")]
    points = [s for s in row["systems"] if "speed" in s]
    if not points:
        return parts + [text(left + LEFT, top + HIGH / 2, f"not measured: {row.get('missing', '')}"[:60], 10)]
    fastest = max(2.0, 1.1 * max(s["cpu_speed"] for s in points))
    top_lost = min(MOST, max(10.0, *(100 * s["lost"] for s in points)))
    span = math.log(top_lost / LEAST)

    def place(s):
        lost = min(MOST, max(LEAST, 100 * s["lost"]))
        return left + LEFT + inner * s["cpu_speed"] / fastest, top + TOP + high * math.log(lost / LEAST) / span

    for percent in (0.01, 0.1, 1, 10, 100):
        if percent <= top_lost:
            y = top + TOP + high * math.log(percent / LEAST) / span
            parts += [line(left + LEFT, y, left + LEFT + inner, y, "#888" if percent == 1 else "#ddd"),
                      text(left + LEFT - 5, y + 4, "0" if percent == LEAST else f"{percent:g} %", 10, "end")]
    for times in range(0, int(fastest) + 1, max(1, int(fastest) // 5)):
        x = left + LEFT + inner * times / fastest
        parts.append(text(x, top + HIGH - 16, f"{times} x", 10, "middle"))
    labels = []
    for s in points:
        kind = next((i for i, k in enumerate(KINDS) if s["system"].startswith(k)), 0)
        x, y = place(s)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{COLOURS[kind]}"/>')
        labels.append((x + 6, y + 4, s["system"].replace(KINDS[kind], "").strip(" ,"), COLOURS[kind]))
    parts += [text(x, y, words, 9, colour=colour) for x, y, words, colour in beside(labels)]
    return parts


def drawn(result):
    rows, columns = result["tasks"], 2
    width, height = PANEL * columns, 46 + HIGH * -(-len(rows) // columns)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
             f'<rect width="{width}" height="{height}" fill="#fff"/>',
             text(12, 20, f"Lost of the task (up is better) over speed by CPU time, relative to floats in octavo; {result['cpu']}, {result['threads']} threads", 12)]
    for i, kind in enumerate(KINDS):
        parts.append(text(12 + 90 * i, 36, kind, 11, colour=COLOURS[i]))
    for i, row in enumerate(rows):
        parts += panel(row, PANEL * (i % columns), 46 + HIGH * (i // columns))
    return "\n".join([*parts, "</svg>", ""])
