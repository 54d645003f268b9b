"""The report for people in a browser: bars that say their numbers, nothing beyond the screen, colours that can be read, cells that open, drawings, keys, a filter,
no network."""

import html
import json
import re
import shutil
import subprocess

import octavo
import pytest
from conftest import BERT, batch, inputs_of

BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser"))), None)

# Runs beside the report in a frame of its own and leaves what it found as the text of the page.
PROBE = r"""
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
  found.dark=frame.contentWindow.matchMedia('(prefers-color-scheme:dark)').matches;
  q.value='';s.value='';for(const d of find('details'))d.open=true;
  const rgb=c=>c.match(/[\d.]+/g).map(Number),light=c=>rgb(c).slice(0,3).map(v=>(v/=255)<=.03928?v/12.92:((v+.055)/1.055)**2.4).reduce((t,v,i)=>t+v*[.2126,.7152,.0722][i],0);
  const ratio=(a,b)=>{const [x,y]=[light(a),light(b)].sort((m,n)=>n-m);return (x+.05)/(y+.05)},style=e=>frame.contentWindow.getComputedStyle(e);
  const under=e=>{for(;e;e=e.parentElement){const c=style(e).backgroundColor;if((rgb(c)[3]??1)>0)return c}return 'rgb(255,255,255)'};
  const faint=()=>{const said=[];for(const e of find('body *')){const svg=e.tagName==='text';if(!svg&&![...e.childNodes].some(n=>n.nodeType===3&&n.data.trim())||!e.getClientRects().length||/^(SCRIPT|title)$/.test(e.tagName))continue;
    const r=svg?ratio(style(e).fill,style(e.parentElement.querySelector('rect')).fill):ratio(style(e).color,under(e));if(r<4.5)said.push([e.tagName,e.textContent.slice(0,40),r])}return said};
  const key=(e,k)=>e.dispatchEvent(new KeyboardEvent('keydown',{key:k,bubbles:true,cancelable:true})),boxes=side=>find('#graph-'+side+' .box'),lit=side=>find('#graph-'+side+' .lit').length;
  found.graphs={};
  for(const side of ['before','after']){const g=found.graphs[side]={folded:boxes(side).length,stops:find('#graph-'+side+' .box[tabindex="0"]').length};
    const buttons=find('#graph-'+side+' .tools button'),named=t=>buttons.find(b=>b.textContent===t);
    const fold=boxes(side).findIndex(b=>b.classList.contains('fold'));
    if(fold>=0){const to=boxes(side)[fold];to.dispatchEvent(new MouseEvent('click',{bubbles:true}));g.opened=boxes(side).length;g.focus=doc.activeElement.closest?.('#graph-'+side+' .box')!==null}
    named('unfold all').click();g.all=boxes(side).length;const rects=boxes(side).map(b=>b.querySelector('rect').getBoundingClientRect());
    g.overlaps=rects.filter((a,i)=>rects.some((b,j)=>j>i&&a.left<b.right-1&&b.left<a.right-1&&a.top<b.bottom-1&&b.top<a.bottom-1)).length;
    const svg=find('#graph-'+side+' svg')[0],before=svg.getAttribute('width');named('+').click();g.larger=svg.getAttribute('width')/before;
    key(svg,'ArrowDown');key(svg,'ArrowDown');g.moved=boxes(side).findIndex(b=>b.getAttribute('tabindex')==='0')}
  const attention=boxes('after').find(b=>/^QuantizedSdpa |^Sdpa /.test(b.getAttribute('aria-label')));attention.dispatchEvent(new MouseEvent('click',{bubbles:true}));
  found.told=find('#graph-after .detail')[0].textContent;found.lit=lit('before');key(find('#graph-after svg')[0],'Enter');
  find('#graph-after .detail button')[0].click();found.after=boxes('after').length;
  for(const width of [400,1024,1440]){frame.style.width=width+'px';found.over['opened '+width]=inside()}
  found.faint=faint();
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
    assert found["faint"] == []
    assert found["told"].startswith("op") and "made of" in found["told"] and found["lit"] > 3
    for side, graph in found["graphs"].items():
        assert graph["stops"] == 1 and graph["moved"] == 2 and graph["overlaps"] == 0 and graph["larger"] == pytest.approx(1.3)
        assert graph["folded"] < graph["opened"] < graph["all"] and graph["focus"], side
    assert found["graphs"]["before"]["all"] > 5 * found["graphs"]["after"]["all"] > 5 * found["after"]
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
    drawn = page[: page.rindex("<script>")]
    assert drawn.count("viewBox") == drawn.count("<svg") > 0
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
    found = look(page, tmp_path, dark)
    assert found["dark"] == dark
    check(found)
