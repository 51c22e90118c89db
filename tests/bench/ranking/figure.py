"""A scatter of predicted over measured times as SVG: both axes logarithmic, one mark a model."""

import math

SIZE, MARGIN = 480, 60
MARKS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd"]


def ticks(low, high):
    """1, 2 and 5 times powers of ten within the range."""
    found = []
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        found += [digit * 10.0**power for digit in (1, 2, 5)]
    return [tick for tick in found if low <= tick <= high]


def scatter(series):
    """series: {name: [(predicted, measured) in seconds]}."""
    times = [time for pairs in series.values() for pair in pairs for time in pair]
    low, high = min(times) / 1.2, max(times) * 1.2

    def place(time):
        return (math.log(time) - math.log(low)) / (math.log(high) - math.log(low)) * SIZE

    def x(time):
        return MARGIN + place(time)

    def y(time):
        return 20 + SIZE - place(time)

    width, height = SIZE + MARGIN + 20, SIZE + MARGIN + 20
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             'font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>',
             f'<rect x="{MARGIN}" y="20" width="{SIZE}" height="{SIZE}" fill="none" stroke="#888"/>']
    for tick in ticks(low, high):
        lines += [f'<line x1="{x(tick):.1f}" y1="20" x2="{x(tick):.1f}" y2="{20 + SIZE}" '
                  'stroke="#ddd"/>',
                  f'<line x1="{MARGIN}" y1="{y(tick):.1f}" x2="{MARGIN + SIZE}" y2="{y(tick):.1f}" '
                  'stroke="#ddd"/>',
                  f'<text x="{x(tick):.1f}" y="{SIZE + 38}" text-anchor="middle">{tick:g}</text>',
                  f'<text x="{MARGIN - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>']
    lines += [f'<line x1="{x(low):.1f}" y1="{y(low):.1f}" x2="{x(high):.1f}" y2="{y(high):.1f}" '
              'stroke="#888"/>',
              f'<text x="{MARGIN + SIZE / 2}" y="{SIZE + 62}" text-anchor="middle">'
              'measured step, s</text>',
              f'<text transform="translate(14,{20 + SIZE / 2}) rotate(-90)" text-anchor="middle">'
              'predicted step, s</text>']
    for i, (name, pairs) in enumerate(series.items()):
        color = MARKS[i % len(MARKS)]
        lines += [f'<circle cx="{x(measured):.1f}" cy="{y(predicted):.1f}" r="4" fill="{color}" '
                  'fill-opacity="0.7"/>' for predicted, measured in pairs]
        lines.append(f'<text x="{MARGIN + 10}" y="{38 + 16 * i}" fill="{color}">{name}</text>')
    return "\n".join(lines + ["</svg>", ""])
