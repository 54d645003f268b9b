// Style and behaviour of the report for people. No script or font from elsewhere, no network.
#ifndef OCTAVO_API_REPORT_PAGE_H_
#define OCTAVO_API_REPORT_PAGE_H_

namespace octavo::api {

inline constexpr const char* kReportStyle =
    R"(:root{color-scheme:light dark;--page:#fff;--ink:#1b1f24;--soft:#57606a;--line:#d9dee4;--panel:#f6f8fa;--good:#116329;--bad:#a40e26;--warn:#fff5d6;
--quantized:#2f7d4f;--fused:#2463a8;--dynamic:#7a5200;--left:#b3261e;--bar:#2463a8;--seen:#6b7682}
@media(prefers-color-scheme:dark){:root{--page:#0f1317;--ink:#e6eaee;--soft:#a0aab4;--line:#313840;--panel:#1a2026;--good:#6fd08c;--bad:#ff9a8f;--warn:#3a3212;
--quantized:#2f7d4f;--fused:#3470b8;--dynamic:#8a6414;--left:#b3403a;--bar:#6ea8e8;--seen:#8b96a2}}
*{box-sizing:border-box}body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:78em;padding:1em;color:var(--ink);background:var(--page)}
h1{font-size:1.4em;margin:.4em 0;overflow-wrap:anywhere}h2{font-size:1.1em}code,pre{font-size:.9em;overflow-wrap:anywhere}pre{white-space:pre-wrap;background:var(--panel);padding:.7em 1em;border-radius:6px}
.verdict{font-size:1.1em;border-left:4px solid var(--bar);padding:.4em .9em;background:var(--panel)}
.cards{display:flex;flex-wrap:wrap;gap:.8em;margin:1em 0}.card{padding:.6em 1.1em;border:1px solid var(--line);border-radius:6px}.card span{display:block;color:var(--soft);font-size:.9em}.card b{font-size:1.4em}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1em 1em}dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
.warn{background:var(--warn);padding:.6em 1em;border-radius:6px}.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%}td,th{padding:.25em .6em;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}td.fused,td.quantized{color:var(--good)}td.left{color:var(--bad)}
summary{cursor:pointer;font-size:1.1em;font-weight:600;margin:1em 0 .5em}
.filter{display:flex;flex-wrap:wrap;gap:.6em;align-items:center;padding:.5em 0;position:sticky;top:0;z-index:1;background:var(--page)}#count{color:var(--soft);font-size:.9em}.dim{opacity:.2}input,select{font:inherit;color:inherit;background:var(--page);border:1px solid var(--line);border-radius:6px;padding:.35em .6em;min-width:0;max-width:100%}input{flex:1 1 14em}
.strip{display:grid;grid-template-columns:max-content 1fr;gap:.3em .8em;align-items:center}.strip .name{color:var(--soft);font-size:.85em;max-width:14em;overflow-wrap:anywhere}
.cells{display:flex;flex-wrap:wrap;gap:3px}.cell{min-width:2.6em;height:1.9em;border-radius:4px;font:600 .75em system-ui,sans-serif;padding:0 .4em;cursor:pointer}.cell,.key{border:2px solid var(--hue);--on:#fff;background:var(--hue);color:var(--on)}
.quantized{--hue:var(--quantized)}.fused{--hue:var(--fused)}.dynamic{--hue:var(--dynamic)}.left,.float{--hue:var(--left)}.key{display:inline-block;width:1.3em;height:.9em;border-radius:3px;margin-left:.6em;vertical-align:-.1em}
.s0,.s1,.s2{background:color-mix(in srgb,var(--hue) var(--deep),var(--page));--on:var(--ink)}.s0{--deep:12%}.s1{--deep:32%}.s2{--deep:56%}.cell.unknown{border-style:dashed}
.cell[aria-expanded=true]{border-color:var(--ink)}.cell:focus-visible,summary:focus-visible,input:focus-visible,select:focus-visible{outline:3px solid var(--bar);outline-offset:1px}
.cell i{display:block;height:3px;background:var(--on);opacity:.85}.legend{color:var(--soft);font-size:.9em}.detail{grid-column:1/-1;background:var(--panel);border-radius:6px;padding:.6em 1em;overflow-wrap:anywhere}
.range{width:100%;min-width:9em;max-width:22em;height:14px;display:block}.share{display:block;height:.7em;background:var(--bar);border-radius:2px}
@media(max-width:40em){.strip{grid-template-columns:1fr}dl{grid-template-columns:1fr}dt{margin-top:.3em}})";

// The strip is made of the JSON beside it: one line for each layer, told by a name's path up to its first number; a cell opens what is known of it.
// The filter hides findings that lack a word, and dims what else does: cells, boxes of the graph, ranges. A box or range also counts where a cell that has all words
// is made of it or reads it.
inline constexpr const char* kReportScript =
    R"(const byId=id=>document.getElementById(id),make=(tag,cls,text)=>{const e=document.createElement(tag);if(cls)e.className=cls;if(text!==undefined)e.textContent=text;return e};
const known=JSON.parse(byId('cells').textContent),strip=byId('strip'),lines=new Map();
const pathOf=n=>{const parts=n.split(/[/.]/).filter(Boolean),i=parts.findIndex((p,k)=>/^\d+$/.test(p)||k<parts.length-1&&/^\D*_\d+$/.test(p));return i<0?'':parts.slice(0,i+1).join('.')};
const titlesOf=keys=>{const all=[...new Set(keys)].map(k=>k.split('.'));let n=0;while(all.length&&all.every(p=>p.length>n+2&&p[n]===all[0][n]))n++;return new Map(all.map(p=>[p.join('.'),p.slice(n).join('.')]))};
const short=c=>{if(c.kind==='attention')return 'attn';if(c.kind!=='linear')return c.kind;const p=(c.nodes[0]||'').split(/[/.]/).filter(Boolean);
return ((/^(MatMul|Gemm|Conv)/.test(p[p.length-1]||'')&&p[p.length-2])||p[p.length-1]||c.kind).slice(0,10)};
const svgOf=()=>{const d=make('div');d.innerHTML='<svg></svg>';return d.firstChild};
const histogram=r=>{const box=make('figure','hist'),svg=svgOf(),n=r.parts.length,el=(tag,set)=>{const e=document.createElementNS(svg.namespaceURI,tag);for(const k in set)e.setAttribute(k,set[k]);svg.append(e)};
const [lo,hi]=[Math.min(r.seen[0],r.chosen[0]),Math.max(r.seen[1],r.chosen[1])],x=v=>hi>lo?300*(v-lo)/(hi-lo):150,w=n?(r.seen[1]-r.seen[0])/n:0;
svg.setAttribute('viewBox','0 0 300 60');svg.setAttribute('preserveAspectRatio','none');svg.setAttribute('role','img');svg.setAttribute('aria-label','how often values were seen; '+r.text);
r.parts.forEach((p,i)=>{if(!p)return;const a=r.seen[0]+i*w,m=a+w/2,h=58*Math.log1p(p)/Math.log1p(99);el('rect',{x:x(a),width:Math.max(.5,x(a+w)-x(a)-.4),y:60-h,height:h,class:m>=r.chosen[0]&&m<=r.chosen[1]?'kept':''})});
for(const end of r.chosen)el('line',{x1:x(end),x2:x(end),y1:0,y2:60});box.append(svg,make('figcaption','',r.value+': '+r.text));return box};
const depthOf=c=>!known.shaded?'':c.adds===undefined?' s0'+(c.status==='left'?'':' unknown'):' s'+(c.adds<20?3:c.adds<30?2:c.adds<40?1:0);
let serial=0;
for(const c of known.cells){const key=pathOf(c.nodes[0]||'')||'other';if(!lines.has(key))lines.set(key,[]);lines.get(key).push(c)}
const named=titlesOf([...lines.keys()].filter(k=>k!=='other'));
const order=[...lines].sort((a,b)=>(a[0]==='other')-(b[0]==='other'));
for(const [key,cells] of order){const row=make('div','cells');strip.append(make('div','name',named.get(key)||key),row);
for(const c of cells){const id='d'+serial++,type=c.type||c.status,b=make('button','cell '+type+depthOf(c),short(c));c.text=[c.kind,...c.nodes,type,c.rule,c.reason,c.place].join(' ').toLowerCase();c.button=b;
b.title=c.nodes[0]||'';b.setAttribute('aria-expanded','false');b.setAttribute('aria-controls',id);b.setAttribute('aria-label',c.kind+' '+(c.nodes[0]||'')+', '+type);
if(c.share!==undefined){const i=make('i');i.style.width=Math.max(4,100*c.share/known.most)+'%';b.append(i)}
const d=make('div','detail');d.id=id;d.hidden=true;const dl=make('dl');
for(const [k,v] of Object.entries({kind:c.kind,nodes:c.nodes.join(', '),'became':type,'by rule':c.rule,why:c.reason,'in the':c.place,takes:c.takes,gives:c.gives,'ms of its step':c.ms&&(c.ms+', '+c.ms_before+' before'+(c.products?' ('+c.products+' Linears in one step)':'')),'adds noise of':c.adds===undefined?'':c.adds>200?'nothing':'-'+c.adds.toFixed(1)+' dB of its values','alone costs':c.db,'share of the loss':c.share===undefined?'':(100*c.share).toFixed(1)+' %'}))if(v)dl.append(make('dt','',k),make('dd','',v));
d.append(dl);for(const r of c.ranges||[])d.append(histogram(known.ranges[r]));strip.append(d);row.append(b);
b.addEventListener('click',()=>{const open=d.hidden;for(const o of strip.querySelectorAll('.detail'))o.hidden=true;for(const o of strip.querySelectorAll('.cell'))o.setAttribute('aria-expanded','false');d.hidden=!open;b.setAttribute('aria-expanded',String(open))})}}
const q=byId('q'),s=byId('s');
const drawn=[];
function sift(){const words=q.value.toLowerCase().split(/\s+/).filter(Boolean),on=words.length>0||s.value!=='',has=t=>words.every(w=>t.includes(w)),said=[],nodes=new Set(),read=new Set();
const tell=(what,n,of)=>{if(of)said.push(n+' of '+of+' '+what)};
let n=0;for(const c of known.cells){const hit=has(c.text)&&(!s.value||c.status===s.value);c.button.classList.toggle('dim',!hit);if(!hit)continue;n++;for(const v of c.nodes)nodes.add(v);for(const r of c.ranges||[])read.add(r)}
tell('cells',n,known.cells.length);n=0;
const own=t=>!s.value&&has(t.toLowerCase()),rows=document.querySelectorAll('#found tbody tr'),ranges=[...document.querySelectorAll('#ranges tr')].slice(1);
for(const d of drawn)tell('nodes '+d.side,d.sift(on&&((x,from)=>own(x.op+' '+x.name)||from.some(f=>nodes.has(f.name)))),d.nodes.length);
for(const r of rows){const hit=has(r.textContent.toLowerCase())&&(!s.value||r.querySelector('td.'+s.value)!==null);r.hidden=!hit;n+=hit}
tell('findings',n,rows.length);n=0;
ranges.forEach((r,i)=>{const hit=!on||read.has(i)||own(r.textContent);r.classList.toggle('dim',!hit);n+=hit});tell('ranges',n,ranges.length);
byId('count').textContent=on?said.join(', '):''}
q.addEventListener('input',sift);s.addEventListener('change',sift);sift();)";

}  // namespace octavo::api

#endif  // OCTAVO_API_REPORT_PAGE_H_
