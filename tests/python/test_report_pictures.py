"""The report as it is seen: parts of it, drawn by a browser, beside small pictures of them that a person has looked at (tests/data/report/pictures.png).

OCTAVO_WRITE_PICTURES=FILE writes the pictures of this run; look at them before they take the place of the others.
"""

import os
import pathlib
import subprocess

import numpy as np
import octavo
import pytest
from conftest import BERT, SOURCE, batch, inputs_of
from test_report import BROWSER, deepened

Image = pytest.importorskip("PIL.Image", reason="no Pillow here")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")

KEPT = SOURCE / "tests" / "data" / "report" / "pictures.png"
WIDTH, HEIGHT, DOT = 960, 640, 8
# Pixels of a dot are averaged: a bar of three pixels is 60 of 255 apart from the page, an edge that lies a pixel off 20.
MOST = 27
OPEN = "[...document.querySelectorAll('.cell')].find(c=>document.getElementById(c.getAttribute('aria-controls')).querySelector('.hist')).click();"
UNFOLD = "for(const b of document.querySelectorAll('.tools button'))if(b.textContent==='unfold all')b.click();"
# What is clicked at first, and what is left of the page then.
PARTS = {
    "layers": ("", "#strip"),
    "histogram": (OPEN, "#strip .detail:not([hidden])"),
    "drawing": (UNFOLD, "#graph-after .canvas"),
    "ranges": ("", "#ranges"),
    "shares": ("", "table:has(.share)"),
}
# Text is another test's: fonts differ. Widths of columns do not follow numbers here.
STYLE = """*{color:transparent!important;font-family:'DejaVu Sans'!important}svg text{fill:transparent!important}table{table-layout:fixed}
body{margin:0!important;max-width:none!important;width:%dpx}.strip{grid-template-columns:14em 1fr!important}""" % WIDTH


@pytest.fixture(scope="module")
def page():
    session = octavo.Session(BERT, threads=1)
    page = octavo.optimize(BERT, calibration=[inputs_of(session, batch(seed)) for seed in range(2)], layers=True).html
    return deepened(page)


def picture(page, folder, part, dark, style=""):
    """Dots of the part in shades of gray."""
    first, kept = PARTS[part]
    script = f"{first}const kept=[...document.querySelectorAll(\"{kept}\")];if(!kept.length)throw 1;document.body.replaceChildren(...kept)"
    (folder / "page.html").write_text(page.replace("</style>", f"{STYLE}{style}</style>", 1).replace("</html>", f"<script>{script}</script></html>"))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1", f"--window-size={WIDTH},{HEIGHT}"]
    if dark:
        flags.append("--blink-settings=preferredColorScheme=0")
    subprocess.run([BROWSER, *flags, f"--screenshot={folder / 'page.png'}", (folder / "page.html").as_uri()], check=True, capture_output=True, timeout=120)
    with Image.open(folder / "page.png") as seen:
        return np.asarray(seen.convert("L").resize((WIDTH // DOT, HEIGHT // DOT), Image.Resampling.BOX), np.uint8)


def apart(a, b):
    return int(np.abs(a.astype(int) - b).max())


def test_parts_look_as_they_were_looked_at(page, tmp_path):
    seen = {(part, dark): picture(page, tmp_path, part, dark) for part in PARTS for dark in (False, True)}
    if target := os.environ.get("OCTAVO_WRITE_PICTURES"):
        Image.fromarray(np.concatenate(list(seen.values()))).save(target, optimize=True)
    with Image.open(KEPT) as kept:
        wanted = np.split(np.asarray(kept), len(seen))
    off = {key: apart(one, other) for (key, one), other in zip(seen.items(), wanted, strict=True)}
    assert all(most <= MOST for most in off.values()), off
    assert apart(wanted[0], wanted[1]) > 100  # dark


@pytest.mark.parametrize(("part", "style"), [
    ("layers", ".cell{background:none!important}"), ("layers", ".cell i{display:none}"), ("layers", ".cell:nth-child(3){visibility:hidden}"),
    ("histogram", ".hist rect{display:none}"), ("histogram", ".hist line{display:none}"), ("histogram", ".hist{transform:scaleX(.8)}"),
    ("drawing", ".box rect{visibility:hidden}"), ("drawing", ".wire{visibility:hidden}"),
    ("ranges", "#ranges tr:nth-child(4) line:nth-child(2){visibility:hidden}"), ("ranges", ".range{transform:scaleX(.8)}"),
    ("shares", "tr:nth-child(2) .share{display:none}"), ("shares", "tr:nth-child(2) .share{width:50%!important}"),
])
def test_what_is_lost_is_seen(page, tmp_path, part, style):
    assert apart(picture(page, tmp_path, part, False), picture(page, tmp_path, part, False, style)) > MOST
