"""Looks at pages with a real Chromium: nothing on the console, all text there, no scrolling sideways
at 400 and 1400 pixels, also where letters are a quarter wider than here, dark where that is preferred. Arguments: sp-plan, folder of documents, chromium."""

import html
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

program, documents, chromium = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]

# A page that holds another one in a frame of a given width and writes down what it finds.
PROBE = """<!DOCTYPE html><meta charset="utf-8"><body style="margin:0">
<iframe id="f" src="%s" style="width:%dpx;height:900px;border:0"></iframe><pre id="found"></pre>
<script>
document.getElementById("f").addEventListener("load", function () {
  const d = this.contentDocument, root = d.documentElement;
  const style = d.createElement("style");
  style.textContent = "%s";
  d.head.append(style);
  const wide = [...d.querySelectorAll("body *")].filter(e => !e.closest(".scroll") && !e.closest("svg")
    && e.getBoundingClientRect().right > root.clientWidth + 1).map(e => e.tagName + "." + e.className);
  const cut = [...d.querySelectorAll("svg text")].filter(t => {
    const b = t.getBoundingClientRect(); return b.width > 0 && (b.left < -1 || b.right > root.clientWidth + 1);
  }).map(t => t.textContent);
  document.getElementById("found").textContent = JSON.stringify({
    client: root.clientWidth, scroll: root.scrollWidth, wide: wide.slice(0, 5), cut: cut.slice(0, 5),
    text: d.body.innerText.length, heading: d.querySelector("h1").innerText,
    ground: d.defaultView.getComputedStyle(d.body).backgroundColor,
    ink: d.defaultView.getComputedStyle(d.body).color});
});
</script>"""


# A machine's fonts may be wider than ours.
WIDE_LETTERS = "text{font-size:15px!important}text.tick{font-size:13.75px!important}text.heat{font-size:11.5px!important}"


def look(page, width, folder, *flags, style=""):
    probe = folder / f"probe-{width}.html"
    probe.write_text(PROBE % (page.as_uri(), width, style))
    run = subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
         f"--user-data-dir={folder}/profile", "--allow-file-access-from-files", "--enable-logging=stderr",
         "--virtual-time-budget=4000", f"--window-size={max(width, 500) + 100},1000", *flags, "--dump-dom",
         probe.as_uri()],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "HOME": str(folder)})
    complaints = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
    if complaints:
        sys.exit(f"{page.name}: on the console: {complaints[0]}")
    found = re.search(r'<pre id="found">(.*?)</pre>', run.stdout, re.S)
    if not found or not found.group(1):
        sys.exit(f"{page.name}: chromium showed nothing: {run.stderr[-500:]}")
    return json.loads(html.unescape(found.group(1)))


def brightness(colour):
    return sum(int(n) for n in re.findall(r"\d+", colour)[:3]) / 3


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    pages = []
    for document in sorted(documents.glob("*.json")):
        page = folder / (document.stem + ".html")
        subprocess.run([program, "report", str(document), "-o", str(page), "--quiet"], check=True)
        pages.append(page)
    whole = folder / "whole.html"
    subprocess.run([program, "report", *map(str, sorted(documents.glob("*.json"))), "-o", str(whole), "--quiet"],
                   check=True)
    for page in [*pages, whole]:
        for width, style in ((400, ""), (400, WIDE_LETTERS), (1400, "")):
            if style and page == whole:
                continue  # its parts were seen
            seen = look(page, width, folder, style=style)
            what = f"{page.name} at {width} px{' in wide letters' if style else ''}"
            assert seen["client"] == width, f"{what}: {seen}"
            assert seen["scroll"] <= width, f"{what} scrolls sideways: {seen}"
            assert not seen["wide"], f"{what}: wider than the page: {seen['wide']}"
            assert not seen["cut"], f"{what}: text beyond the page's edge: {seen['cut']}"
            assert seen["text"] > 200 and seen["heading"], f"{what} shows little: {seen}"
            assert brightness(seen["ground"]) > 200 > 100 > brightness(seen["ink"]), f"{what} is not light: {seen}"
    dark = look(whole, 1400, folder, "--force-dark-mode", "--blink-settings=preferredColorScheme=0")
    assert brightness(dark["ground"]) < 60 and brightness(dark["ink"]) > 180, f"not dark: {dark}"
print(f"{len(pages)} pages and all of them together look well")
