"""The report for people in a browser: bars that say their numbers, nothing beyond the screen, cells that open, a filter, no network."""

import html
import json
import re
import shutil
import subprocess

import octavo
import pytest
from conftest import BERT, batch, inputs_of

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")

# Runs beside the report in a frame of its own and leaves what it found as the text of the page.
PROBE = """
const out=[],frame=document.querySelector('iframe'),find=(s,d=frame.contentDocument)=>[...d.querySelectorAll(s)];
const inside=()=>frame.contentDocument.documentElement.scrollWidth-frame.contentDocument.documentElement.clientWidth;
frame.onload=()=>{
  const doc=frame.contentDocument,found={over:{},errors:frame.contentWindow.failed||[]};
  for(const width of [400,1024,1440]){frame.style.width=width+'px';found.over[width]=inside()}
  found.bars=find('#ranges svg').map(s=>{const box=s.getBoundingClientRect(),row=s.closest('tr').cells,lines=[...s.querySelectorAll('line')].map(l=>l.getBoundingClientRect());
    return {seen:row[1].textContent,chosen:row[2].textContent,box:[box.left,box.right],lines:lines.map(l=>[l.left,l.right])}});
  found.cells=find('.cell').length;
  const cell=find('.cell')[0];cell.click();
  found.open=find('.detail').filter(d=>!d.hidden).map(d=>d.textContent);found.expanded=cell.getAttribute('aria-expanded');
  cell.click();found.closed=find('.detail').every(d=>d.hidden);
  const rows=()=>find('#found tbody tr').filter(r=>!r.hidden).length,q=doc.getElementById('q'),s=doc.getElementById('s');
  found.rows=[rows()];q.value='softmax';q.dispatchEvent(new Event('input'));found.rows.push(rows());
  q.value='';s.value='left';s.dispatchEvent(new Event('change'));found.rows.push(rows());
  found.count=doc.getElementById('count').textContent;
  found.unnamed=find('button,input,select').filter(e=>!(e.getAttribute('aria-label')||e.textContent)).length;
  document.body.textContent='FOUND'+JSON.stringify(found)+'END';
};
"""


def look(page, folder, dark=False):
    """What PROBE finds in a page that lies in a folder of its own."""
    watch = "<script>window.failed=[];addEventListener('error',e=>failed.push(String(e.message)))</script>"
    (folder / "probe.html").write_text(
        f"<!doctype html><meta charset=utf-8><body style='margin:0'><iframe style='width:400px;height:900px;border:0' "
        f"srcdoc=\"{html.escape(watch + page)}\"></iframe><script>{PROBE}</script>")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--window-size=1500,1000"]
    if dark:
        flags.append("--blink-settings=preferredColorScheme=0")
    done = subprocess.run(
        [BROWSER, *flags, "--dump-dom", (folder / "probe.html").as_uri()], capture_output=True, text=True, timeout=120)
    text = re.search(r"FOUND(.*)END", html.unescape(done.stdout), re.DOTALL)
    assert text, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(text[1])


def check(found):
    assert found["errors"] == []
    assert all(over <= 0 for over in found["over"].values()), found["over"]
    assert found["bars"] and found["cells"] > 0 and found["unnamed"] == 0
    most = max(max(abs(float(x)) for x in bar["seen"].split(" .. ")) for bar in found["bars"])
    for bar in found["bars"]:
        left, right = bar["box"]
        for text, line in zip((bar["seen"], bar["chosen"]), bar["lines"]):
            # 295 of 300 units are the largest value; a line that is a point has no width.
            for value, at in zip(map(float, text.split(" .. ")), line):
                want = left + (right - left) * (150 + 145 * value / most) / 300
                assert at == pytest.approx(want, abs=0.6), (bar, value)
                assert left - 0.6 <= at <= right + 0.6, bar
    assert len(found["open"]) == 1 and "became" in found["open"][0] and found["expanded"] == "true" and found["closed"]
    all_rows, softmax, left = found["rows"]
    assert all_rows > softmax > 0 and found["count"] == f"{left} shown"


@pytest.fixture(scope="module")
def page():
    session = octavo.Session(BERT, threads=1)
    data = [inputs_of(session, batch(seed)) for seed in range(2)]
    return octavo.optimize(BERT, calibration=data, layers=True).html


def test_the_report_says_the_same_each_time_and_asks_nobody(page):
    session = octavo.Session(BERT, threads=1)
    data = [inputs_of(session, batch(seed)) for seed in range(2)]
    assert octavo.optimize(BERT, calibration=data, layers=True).html == page
    assert not re.search(r"(src|href)=|https?://|@import|url\(", page)
    assert page.count("viewBox") == page.count("<svg") > 0
    assert re.search(r"class=verdict>The output keeps \d+\.\d dB of the model as it was", page)
    assert octavo.__version__ in page and octavo.cpu().split(",")[0] in html.unescape(page)


def test_nodes_before_are_those_of_the_file(page):
    table = page[page.index("Nodes before and after") :]
    counts = {op: int(before) for op, before in re.findall(r"<tr><td>(\w+)<td class=n>(\d+)<td class=n>", table)}
    ops = octavo.inspect(BERT)["ops"]
    assert {op: n for op, n in counts.items() if n} == {op: n for op, n in ops.items() if "::" not in op}


def test_the_program_says_how_to_get_it_again(run, calib):
    assert run("optimize", BERT, "-o", "it's.onnx", "--calib", calib, "--report", "r.html").returncode == 0
    told = html.unescape(run("optimize", BERT, "-o", "it's.onnx", "--calib", calib, "--report", "/dev/stdout").stdout)
    assert f"octavo optimize {BERT} -o 'it'\\''s.onnx' --calib {calib} --report /dev/stdout</pre>" in told


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize("dark", [False, True])
def test_the_report_in_a_browser(page, tmp_path, dark):
    check(look(page, tmp_path, dark))
