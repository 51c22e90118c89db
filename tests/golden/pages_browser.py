#!/usr/bin/env python3
"""Pages of `sbplan report` in headless Chromium. Usage: pages_browser.py SBPLAN ROOT CHROMIUM"""

import html
import json
import os
import re
import subprocess
import sys
import tempfile

from checks import end, expect

program, root, chromium = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3]
os.environ["SBPLAN_CONFIGS"] = root + "/configs"
NAME = "<script>alert('x')</script><img src=x onerror=alert(1)>"
# Asks the page of itself; the page that is shipped has no script.
PROBE = """<script>
const all = selector => [...document.querySelectorAll(selector)];
const reached = element => { element.focus(); return document.activeElement === element; };
const ends = element => element.getBoundingClientRect().right;
document.documentElement.dataset.found = JSON.stringify({
  wide: document.documentElement.scrollWidth, window: window.innerWidth,
  silent: all('summary, .scroll, nav a').filter(e => e.checkVisibility() && !reached(e)).length,
  flat: all('svg').filter(e => e.checkVisibility() && e.getBoundingClientRect().height < 3).length,
  outside: all('section .axis span, section p').filter(e => ends(e) > ends(e.closest('section')) + 1).length,
  ground: getComputedStyle(document.body).backgroundColor, title: document.querySelector('h1').textContent,
  scripts: document.scripts.length, images: document.images.length});
</script></body>"""
# A browser's own window is never as narrow as a telephone.
FRAME = """<!DOCTYPE html><html style="color-scheme: light dark"><body>
<iframe id="page" style="width: %dpx; height: 900px; border: 0" srcdoc="%s"></iframe><script>
onload = () => document.documentElement.dataset.found = page.contentDocument.documentElement.dataset.found;
</script></body></html>"""


def sbplan(*words):
    subprocess.run([program, *words], check=True, stdout=subprocess.DEVNULL)


def look(page, width, dark, scratch):
    """What the page says of itself, and what stood on the console."""
    with open("frame.html", "w") as file:
        file.write(FRAME % (width, html.escape(page)))
    done = subprocess.run(
        [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
         f"--user-data-dir={scratch}/profile", "--window-size=1400,1000", "--dump-dom",
         f"--blink-settings=preferredColorScheme={0 if dark else 1}", f"file://{scratch}/frame.html"],
        capture_output=True, text=True, timeout=100, check=True)  # fmt: skip
    found = re.search(r'data-found="([^"]*)"', done.stdout).group(1)
    return json.loads(html.unescape(found)), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def check(name, page, scratch):
    grounds = set()
    for width in (1280, 390):
        for dark in (False, True):
            found, console = look(page, width, dark, scratch)
            at = f"{name}, {width} pixels, {'dark' if dark else 'light'}: "
            expect(found["window"] == width, at + f"a window of {found['window']} pixels")
            expect(not console, at + str(console))
            expect(found["wide"] <= found["window"], at + f"{found['wide']} pixels wide of {found['window']}")
            for what in ("silent", "flat", "outside", "images"):
                expect(found[what] == 0, at + f"{found[what]} {what}")
            expect(found["scripts"] == 1, at + "a script beside ours")
            grounds.add(found["ground"])
    expect(len(grounds) == 2, f"{name}: light and dark are one: {grounds}")
    return found


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    sbplan(*"search tiny-gpt laptop-4 --set pipeline=2 --set micro_batch=2 --top 2 -o stages.json".split())
    sbplan(*"price llama-3.1-8b dgx-h100-8x8 --tp 2 --pp 4 --micro-batch 1 --zero 1 -o large.json".split())
    with open("sweep.json", "w") as file:
        subprocess.run([program, *"search tiny-mlp laptop-4 --sweep global_batch=8,16 --json".split()], stdout=file)
    with open(root + "/tests/golden/data/two-linears.json") as file:
        model = {**json.load(file), "name": NAME}
    with open("model.json", "w") as file:
        json.dump(model, file)
    sbplan("search", "model.json", "laptop-4", "-o", "hostile.json")
    for name, files in {"stages": ("stages.json", "stages-2.json", "sweep.json"), "large": ("large.json",),
                        "hostile": ("hostile.json",)}.items():  # fmt: skip
        sbplan("report", *files, "-o", "page.html")
        with open("page.html") as file:
            text = file.read()
        said = check(name, text.replace("</body>", PROBE), folder)
        expect(name != "hostile" or said["title"] == NAME + " on laptop-4", f"a title {said['title']}")
end("3 pages")
