"""The report for people in a browser: bars that say their numbers, nothing beyond the screen, colours that can be read, cells that open, drawings, keys, a filter,
no network."""

import html
import json
import re
import resource
import shutil
import subprocess

import numpy as np
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
  found.shown={};cell.click();for(const c of find('.cell')){c.click();for(const d of find('.detail').filter(d=>!d.hidden&&d.closest('#strip'))){
      for(const t of d.querySelectorAll('dt'))found.shown[t.textContent]=(found.shown[t.textContent]||0)+1;
      for(const f of d.querySelectorAll('figure')){const box=f.querySelector('svg').getBoundingClientRect(),rects=[...f.querySelectorAll('rect')].map(r=>r.getBoundingClientRect());
        (found.histograms??=[]).push({bars:rects.length,kept:f.querySelectorAll('rect.kept').length,ends:f.querySelectorAll('line').length,
          out:rects.filter(r=>r.left<box.left-1||r.right>box.right+1||r.top<box.top-1||r.bottom>box.bottom+1).length,text:f.textContent})}}}
  find('.cell').forEach(c=>c.getAttribute('aria-expanded')==='true'&&c.click());
  found.lanes=find('.lanes svg').map(s=>{const box=s.getBoundingClientRect(),r=[...s.querySelectorAll('rect')];const last=r[r.length-1].getBoundingClientRect();return {steps:r.length,end:(last.right-box.left)/box.width,titles:r.filter(x=>x.querySelector('title').textContent).length}});
  found.closed=find('.detail').every(d=>d.hidden);
  const rows=()=>find('#found tbody tr').filter(r=>!r.hidden).length,q=doc.getElementById('q'),s=doc.getElementById('s');
  const sift=(words,status='')=>{q.value=words;s.value=status;q.dispatchEvent(new Event('input'));
    const bright=list=>list.filter(e=>!e.classList.contains('dim')).length,boxes=side=>bright(find('#graph-'+side+' .box'));
    return {rows:rows(),cells:bright(find('.cell')),ranges:bright(find('#ranges tr'))-1,before:boxes('before'),after:boxes('after'),said:doc.getElementById('count').textContent}};
  found.sifted={none:sift(''),core:sift('layer.0 attention softmax'),left:sift('','left'),nothing:sift('no such thing')};sift('');
  found.shades=[...new Set(find('.cell').map(c=>c.className))];
  found.unnamed=find('button,input,select').filter(e=>!(e.getAttribute('aria-label')||e.textContent)).length;
  found.dark=frame.contentWindow.matchMedia('(prefers-color-scheme:dark)').matches;
  q.value='';s.value='';for(const d of find('details'))d.open=true;
  const rgb=c=>c.match(/[\d.]+/g).map((v,i)=>Number(v)*(c.startsWith('color(')&&i<3?255:1)),light=c=>rgb(c).slice(0,3).map(v=>(v/=255)<=.03928?v/12.92:((v+.055)/1.055)**2.4).reduce((t,v,i)=>t+v*[.2126,.7152,.0722][i],0);
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
    watch = ("<script>window.failed=[];addEventListener('error',e=>failed.push(String(e.message)));"
             "for(const said of ['error','warn'])console[said]=(...words)=>failed.push(words.join(' '))</script>")
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


def deepened(page):
    """With cells of all depths: random weights lose little."""
    decibels = iter([12.5, 25, 35, 45] * len(page))
    return re.sub(r'"adds":[\d.]+', lambda _: f'"adds":{next(decibels)}', page)


def check(found):
    assert {"kind", "became", "takes", "gives"} <= set(found["shown"]) and found["shown"]["takes"] == found["cells"]
    assert found["histograms"] and all(h["ends"] == 2 and h["out"] == 0 and 0 < h["kept"] <= h["bars"] for h in found["histograms"])
    assert all(re.search(r": seen -?[\d.e+-]+ to -?[\d.e+-]+, codes reach", h["text"]) for h in found["histograms"])
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
    sifted = found["sifted"]
    for part in ("rows", "cells", "ranges", "before", "after"):
        assert sifted["none"][part] > sifted["core"][part] > sifted["nothing"][part] == 0, (part, sifted)
    assert sifted["none"]["said"] == ""
    said = re.match(r"(\d+) of (\d+) cells, \d+ of \d+ nodes before, \d+ of \d+ nodes after, (\d+) of \d+ findings, (\d+) of (\d+) ranges$", sifted["core"]["said"])
    assert said and [int(n) for n in said.groups()] == [sifted[a][b] for a, b in (("core", "cells"), ("none", "cells"), ("core", "rows"), ("core", "ranges"), ("none", "ranges"))]
    assert all(re.search(r" s[0-3]$", look) for look in found["shades"]), found["shades"]


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


def test_of_python_it_says_command_commit_and_hashes(page, calib):
    assert re.search(r"<dt>octavo<dd>octavo \d+\.\d+\.\d+ \([0-9a-f]{10}\+?\)", page) or "octavo " + octavo.__version__ in page
    again = octavo.optimize(BERT, calibration=str(calib), layers=True, threads=1).html
    told = html.unescape(re.sub("<[^>]*>", " ", again[again.index("How to get it again") :]))
    assert f"octavo.optimize('{BERT}', calibration='{calib}', threads=1, layers=True)" in told
    sums = {subprocess.run(["sha256sum", BERT], capture_output=True, text=True).stdout.split()[0]}
    whole = subprocess.run(f"cat $(find '{calib}' -type f | LC_ALL=C sort) | sha256sum", shell=True, capture_output=True, text=True).stdout.split()[0]
    assert sums | {whole} <= set(told.split())
    data = BERT.read_bytes()
    of_bytes = octavo.optimize(data, recipe="float").html
    assert sums <= set(re.sub("<[^>]*>", " ", of_bytes).split()) and "octavo.optimize(..., recipe='float')" in html.unescape(of_bytes)


def test_what_is_measured_is_told_and_left_out_where_the_page_shall_be_the_same(run, calib, tmp_path):
    for name in ("a.html", "b.html"):
        assert run("optimize", BERT, "-o", "m.onnx", "--calib", calib, "--report", name, "--no-measure").returncode == 0
    first, second = ((tmp_path / name).read_text() for name in ("a.html", "b.html"))
    assert first.replace("a.html", "b.html") == second and "Where the milliseconds are" not in first
    assert run("optimize", BERT, "-o", "m.onnx", "--calib", calib, "--report", "c.html", "--json", "c.json").returncode == 0
    told, measured = (tmp_path / "c.html").read_text(), json.loads((tmp_path / "c.json").read_text())["measured"]
    assert "Where the milliseconds are" in told and "times as " in told and "peak memory, before and now" in told and "Speed was not measured" not in told
    for side in (measured["before"], measured["after"]):
        assert side["runs"] >= 3 and 0 < side["p10_ms"] <= side["median_ms"] <= side["p90_ms"]
        assert 5e6 < side["peak_bytes"] < 1e9 and side["steps"] and all(step["ms"] >= 0 and step["kernel"] for step in side["steps"])
    assert measured["speedup"] == pytest.approx(measured["before"]["median_ms"] / measured["after"]["median_ms"])
    assert measured["random"] is False and "input_ids 2x7" in measured["shapes"]
    assert len(measured["after"]["steps"]) < len(measured["before"]["steps"])


@pytest.mark.parametrize("model", [BERT, BERT.read_bytes(), octavo.Graph(BERT)], ids=["path", "bytes", "graph"])
def test_python_tells_peak_memory_too(model):
    result = octavo.optimize(model, recipe="dynamic", measure=True)
    assert all(5e6 < result.report["measured"][side]["peak_bytes"] < 1e9 for side in ("before", "after"))
    assert "peak memory, before and now" in result.html


def test_without_the_program_nothing_is_told_of_memory(monkeypatch):
    monkeypatch.setattr(octavo, "_program", lambda: None)
    measured = octavo.optimize(BERT, recipe="dynamic", measure=True).report["measured"]
    assert measured["before"]["median_ms"] > 0 and "peak_bytes" not in measured["before"]


def layered(layers, path):
    """A decoder-like model of many nodes: torch-like names, layer norms and gelus written out."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng, nodes, weights, width, heads = np.random.default_rng(1), [], [], 32, 4

    def const(name, array):
        weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    two, eps, root, half, one = (const(n, np.float32(v)) for n, v in (("two", 2), ("eps", 1e-5), ("root", 2**0.5), ("half", 0.5), ("one", 1)))
    split, joined, scale = const("split", np.array([0, 0, heads, width // heads])), const("joined", np.array([0, 0, width])), const("scale", np.float32(8**-0.5))

    def op(kind, name, *operands, **attributes):
        nodes.append(helper.make_node(kind, list(operands), [f"{name}_output"], name=name, **attributes))
        return f"{name}_output"

    def norm(x, at):
        mean = op("ReduceMean", f"{at}/ReduceMean", x, axes=[-1])
        off = op("Sub", f"{at}/Sub", x, mean)
        spread = op("Sqrt", f"{at}/Sqrt", op("Add", f"{at}/Add", op("ReduceMean", f"{at}/ReduceMean_1", op("Pow", f"{at}/Pow", off, two), axes=[-1]), eps))
        scaled = op("Mul", f"{at}/Mul", op("Div", f"{at}/Div", off, spread), const(f"{at}.weight", np.ones(width, np.float32)))
        return op("Add", f"{at}/Add_1", scaled, const(f"{at}.bias", np.zeros(width, np.float32)))

    def linear(x, at, a, b):
        w = const(f"{at}.weight", rng.normal(0, a**-0.5, (a, b)).astype(np.float32))
        return op("Add", f"{at}/Add", op("MatMul", f"{at}/MatMul", x, w), const(f"{at}.bias", np.zeros(b, np.float32)))

    x = "x"
    for i in range(layers):
        at = f"/model/layers.{i}"
        y = norm(x, f"{at}/input_layernorm")
        parts = [op("Transpose", f"{at}/self_attn/{n}_t", op("Reshape", f"{at}/self_attn/{n}_r", linear(y, f"{at}/self_attn/{n}_proj", width, width), split),
                    perm=[0, 2, 3, 1] if n == "k" else [0, 2, 1, 3]) for n in "qkv"]
        scores = op("Mul", f"{at}/self_attn/Mul", op("MatMul", f"{at}/self_attn/MatMul", *parts[:2]), scale)
        core = op("MatMul", f"{at}/self_attn/MatMul_1", op("Softmax", f"{at}/self_attn/Softmax", scores, axis=-1), parts[2])
        back = op("Reshape", f"{at}/self_attn/Reshape", op("Transpose", f"{at}/self_attn/Transpose", core, perm=[0, 2, 1, 3]), joined)
        x = op("Add", f"{at}/Add", x, linear(back, f"{at}/self_attn/o_proj", width, width))
        up = linear(norm(x, f"{at}/post_attention_layernorm"), f"{at}/mlp/up_proj", width, 2 * width)
        erf = op("Add", f"{at}/mlp/act/Add", op("Erf", f"{at}/mlp/act/Erf", op("Div", f"{at}/mlp/act/Div", up, root)), one)
        act = op("Mul", f"{at}/mlp/act/Mul_1", op("Mul", f"{at}/mlp/act/Mul", up, erf), half)
        x = op("Add", f"{at}/Add_1", x, linear(act, f"{at}/mlp/down_proj", 2 * width, width))
    shape = ["batch", "tokens", width]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)], [helper.make_tensor_value_info(x, TensorProto.FLOAT, shape)], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return len(nodes)


def empty_pages_to_open(page):
    """Time of the processor, which other work on the machine does not count to, that the browser takes for this page beyond an empty one, in times of the
    empty one, so that a slow CPU makes no difference: the least of three."""
    def took(address):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--single-process", "--no-zygote", "--dump-dom"]
        done = subprocess.run([BROWSER, *flags, address], capture_output=True, timeout=120)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, len(done.stdout)

    empty, whole = (min(took(address) for _ in range(3)) for address in ("about:blank", page.as_uri()))
    assert whole[1] > page.stat().st_size  # it was drawn
    return whole[0] / empty[0] - 1


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_thirty_two_layers_are_small_and_quickly_open(tmp_path):
    count = layered(32, tmp_path / "m.onnx")
    result = octavo.optimize(tmp_path / "m.onnx", calibration="random:2", layers=False, measure=True)
    assert count > 1500 and result.report["attention"] == {"found": 32, "fused": 32}
    page = tmp_path / "page.html"
    result.save_html(page)
    assert "Where the milliseconds are" in result.html and page.stat().st_size < 3e6
    assert empty_pages_to_open(page) < 5  # 3.2 on a Zen 3 at 2.4 GHz, where it is a second


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


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize("dark", [False, True])
def test_cells_are_the_deeper_the_more_noise_they_add(page, tmp_path, dark):
    assert page.count('"adds":') > 10
    found = look(deepened(page), tmp_path, dark)
    assert {look.rsplit(" ", 1)[1] for look in found["shades"]} == {"s0", "s1", "s2", "s3"} and found["shown"]["adds noise of"] > 10
    assert found["faint"] == []


def test_without_data_no_loss_is_drawn():
    plain = octavo.optimize(BERT, recipe="dynamic").html
    assert '"shaded":false' in plain and '"adds":' not in plain and "Depth is loss" not in plain


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize(("script", "said"), [("nowhere()", "nowhere is not defined"), ("console.error('e',1)", "e 1")])
def test_errors_of_the_page_would_be_noticed(page, tmp_path, script, said):
    (error,) = look(page.replace("</html>", f"<script>{script}</script></html>"), tmp_path)["errors"]
    assert said in error


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize("dark", [False, True])
def test_the_report_with_times_in_a_browser(tmp_path, dark):
    session = octavo.Session(BERT, threads=1)
    data = [inputs_of(session, batch(seed)) for seed in range(2)]
    found = look(octavo.optimize(BERT, calibration=data, layers=True, measure=True).html, tmp_path, dark)
    check(found)
    before, after = found["lanes"]
    assert before["steps"] > after["steps"] > 3 and before["titles"] == before["steps"]
    assert max(before["end"], after["end"]) == pytest.approx(1, abs=0.02) and min(before["end"], after["end"]) > 0
    assert found["shown"]["ms of its step"] > 0


def test_a_cell_has_the_milliseconds_of_its_own_step_and_of_the_same_work_before():
    """Codes bear the names of their reader, so that the steps around an attention core have its name, too."""
    session = octavo.Session(BERT, threads=1)
    result = octavo.optimize(BERT, calibration=[inputs_of(session, batch(seed)) for seed in range(2)], measure=True)
    cells = json.loads(re.search(r"<script id=cells type=application/json>(.*?)</script>", result.html, re.DOTALL)[1])["cells"]
    after, before = (result.report["measured"][side]["steps"] for side in ("after", "before"))
    of = lambda steps, *words: [step["ms"] for step in steps if any(word in step["kernel"] + step["node"] for word in words)]
    cores = [cell for cell in cells if cell["kind"] == "attention"]
    assert [cell["ms"] for cell in cores] == [f"{ms:.3f}" for ms in of(after, "sdpa_int8")]
    assert all(float(cell["ms_before"]) >= round(ms, 3) for cell, ms in zip(cores, of(before, "sdpa_f32"), strict=True))
    groups = [cell for cell in cells if cell["kind"] == "qkv"]
    assert [(cell["ms"], cell["products"]) for cell in groups] == [(f"{ms:.3f}", 3) for ms in of(after, "qkv_int8")]
    told = sum(float(cell["ms_before"]) for cell in groups)
    assert told == pytest.approx(sum(of(before, "/query/", "/key/", "/value/")), abs=0.002)
    assert sum(float(cell["ms_before"]) for cell in cores + groups) < sum(step["ms"] for step in before)
