// Behaviour of the report's two drawings: layers of boxes, folded by layers of the model, in plain SVG. Behind kReportScript (report_page.h), whose helpers it takes.
#ifndef OCTAVO_API_REPORT_DRAWING_H_
#define OCTAVO_API_REPORT_DRAWING_H_

namespace octavo::api {

inline constexpr const char* kDrawingStyle =
    R"(.graphs{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26em),1fr));gap:1em}.graphs>section{min-width:0}.graphs h3{font-size:1em;margin:.3em 0}
.tools{display:flex;flex-wrap:wrap;gap:.4em;margin:.4em 0}.tools button,.detail button{font:inherit;color:inherit;background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:.2em .7em;cursor:pointer}
.tools input{flex:1 1 8em}.canvas{overflow:auto;height:34em;max-height:80vh;border:1px solid var(--line);border-radius:6px}.canvas svg{display:block;margin:0 auto}
.box rect{fill:var(--panel);stroke:var(--soft)}.box text{font:12px ui-monospace,monospace;fill:var(--ink);text-anchor:middle;dominant-baseline:central}.box{cursor:pointer}
.box.quantized rect{fill:var(--quantized)}.box.fused rect{fill:var(--fused)}.box.quantized text,.box.fused text{fill:#fff}.box.end rect{fill:var(--page)}.box.codes rect{stroke-dasharray:4 3}
.box.fold rect{stroke-width:2}.box.lit rect{stroke:var(--bad);stroke-width:4}.box:focus{outline:none}.box:focus-visible rect{stroke:var(--bar);stroke-width:4}
.graphs .detail dl{margin:.2em 0}.wire{fill:none;stroke:var(--seen);stroke-width:1}.canvas:focus-visible,button:focus-visible{outline:3px solid var(--bar);outline-offset:1px})";

// A drawing folds each layer into one box; a chosen box opens, a chosen node is told of and lights what it became or was made of in the other drawing.
// Boxes stand in rows by their longest way from the inputs, near what they read; wires that pass rows go around boxes.
inline constexpr const char* kDrawingScript =
    R"(
function groupsOf(nodes){
  const n=nodes.length,own=nodes.map(x=>x.look==='end'?'':pathOf(x.name)),order=new Map(),last=own.map(()=>-1),reaches=own.map(()=>false);
  own.forEach(k=>{if(k&&!order.has(k))order.set(k,order.size)});
  const keys=[...order.keys()];
  for(let i=0;i<n;i++){last[i]=Math.max(own[i]?order.get(own[i]):-1,...nodes[i].reads.map(r=>last[r]),-1)}
  for(let i=n-1;i>=0;i--)for(const r of nodes[i].reads)if(own[i]||reaches[i])reaches[r]=true;
  return nodes.map((x,i)=>x.look==='end'?'':own[i]||(!reaches[i]?'behind the layers':last[i]>=0?keys[last[i]]:'before the layers'));
}
function pieces(nodes){  // without layers: as many boxes as can be read
  const keys=groupsOf(nodes),named=nodes.some(x=>x.look!=='end'&&pathOf(x.name));
  return named||nodes.length<=60?keys.map(k=>named?k:''):nodes.map((x,i)=>x.look==='end'?'':'nodes '+(Math.floor(i/40)*40+1)+' to '+(Math.floor(i/40)*40+40));
}
function rowsOf(count,edges){  // longest way; a wire that would close a circle is left out of it
  const next=Array.from({length:count},()=>[]),state=new Uint8Array(count),after=[],back=new Set();
  edges.forEach(([a,b],e)=>next[a].push([b,e]));
  for(let s=0;s<count;s++){if(state[s])continue;const stack=[[s,0]];state[s]=1;
    while(stack.length){const top=stack[stack.length-1],[v,at]=top;
      if(at<next[v].length){top[1]++;const [w,e]=next[v][at];if(state[w]===1)back.add(e);else if(!state[w]){state[w]=1;stack.push([w,0])}}
      else{state[v]=2;after.push(v);stack.pop()}}}
  const row=new Int32Array(count),reads=new Int32Array(count);
  for(const v of after.reverse())for(const [w,e] of next[v])if(!back.has(e)){row[w]=Math.max(row[w],row[v]+1);reads[w]++}
  for(const v of after.reverse())if(!reads[v]){const down=next[v].filter(([,e])=>!back.has(e)).map(([w])=>row[w]);if(down.length)row[v]=Math.min(...down)-1}
  return {row,back};
}
function layOut(widths,edges){
  const {row,back}=rowsOf(widths.length,edges),rows=[],x=[],at=Array.from(row),width=[...widths],ways=[];
  const up=widths.map(()=>[]),down=widths.map(()=>[]);
  const join=(a,b)=>{down[a].push(b);up[b].push(a)};
  edges.forEach(([a,b],e)=>{if(back.has(e)){ways.push([a,b]);return}
    const way=[a];let from=a;
    for(let r=row[a]+1;r<row[b];r++){const d=width.length;width.push(6);at.push(r);up.push([]);down.push([]);join(from,d);way.push(d);from=d}
    join(from,b);way.push(b);ways.push(way)});
  width.forEach((w,i)=>(rows[at[i]]??=[]).push(i));
  for(const r of rows)r?.forEach((i,k)=>x[i]=k);
  const pull=i=>i<widths.length?6:1,mean=list=>list.reduce((s,i)=>s+x[i]*pull(i),0)/list.reduce((s,i)=>s+pull(i),0),side=(i,dn)=>dn?down[i]:up[i];
  for(let sweep=0;sweep<8;sweep++){const dn=sweep%2===1;
    for(const r of dn?[...rows].reverse():rows){if(!r)continue;
      const want=new Map(r.map((i,k)=>[i,side(i,dn).length?mean(side(i,dn)):x[i]]));
      r.sort((a,b)=>want.get(a)-want.get(b)||x[a]-x[b]);r.forEach((i,k)=>x[i]=k)}}
  for(const r of rows){let left=0;for(const i of r??[]){x[i]=left+width[i]/2;left+=width[i]+14}}
  for(let sweep=0;sweep<10;sweep++){const dn=sweep%2===1;
    for(const r of dn?[...rows].reverse():rows){if(!r)continue;  // nearest places that keep order and distance: blocks that would overlap become one
      const blocks=[];let offset=0;
      r.forEach((i,k)=>{offset+=k?(width[r[k-1]]+width[i])/2+14:0;const near=side(i,dn);
        let b={sum:((near.length?mean(near):x[i])-offset)*pull(i),count:pull(i),members:[[i,offset]]};
        while(blocks.length&&blocks[blocks.length-1].sum/blocks[blocks.length-1].count>=b.sum/b.count){const p=blocks.pop();b={sum:p.sum+b.sum,count:p.count+b.count,members:p.members.concat(b.members)}}
        blocks.push(b)});
      for(const b of blocks)for(const [i,o] of b.members)x[i]=b.sum/b.count+o}}
  const least=Math.min(...x.map((v,i)=>v-width[i]/2)),most=Math.max(...x.map((v,i)=>v+width[i]/2));
  return {x:x.map(v=>v-least+10),y:at.map(r=>r*52+24),ways,width:most-least+20,height:rows.length*52};
}
function drawing(root,nodes){
  const svg=root.querySelector('svg'),canvas=root.querySelector('.canvas'),told=root.querySelector('.detail'),keys=pieces(nodes),open=new Set(),self={lit:new Set()};
  const sizes=new Map(),titles=titlesOf(nodes.map(x=>pathOf(x.name)).filter(Boolean));let scale=1,boxes=[],size={width:1,height:1},lead=0;
  keys.forEach(k=>k&&sizes.set(k,(sizes.get(k)||0)+1));
  const alone=k=>!k||sizes.get(k)<3,folded=i=>!alone(keys[i])&&!open.has(keys[i]);
  const el=(tag,set)=>{const e=document.createElementNS(svg.namespaceURI,tag);for(const k in set)e.setAttribute(k,set[k]);return e};
  const zoom=k=>{const cx=(canvas.scrollLeft+canvas.clientWidth/2)/scale,cy=canvas.scrollTop/scale;scale=Math.min(3,Math.max(.08,k));
    svg.setAttribute('width',size.width*scale);svg.setAttribute('height',size.height*scale);canvas.scrollLeft=cx*scale-canvas.clientWidth/2;canvas.scrollTop=cy*scale};
  const button=(text,act)=>{const b=make('button','',text);b.type='button';b.addEventListener('click',act);return b};
  function tell(i){
    const n=nodes[i],dl=make('dl');told.replaceChildren(dl);told.hidden=false;
    for(const [k,v] of Object.entries({op:n.op,name:n.name,gives:n.type,reads:n.reads.map(r=>nodes[r].name).join(', '),layer:titles.get(keys[i])||keys[i],'made of':n.from.length?n.from.length+' nodes: '+n.from.slice(0,24).map(f=>self.peer.nodes[f].name).join(', ')+(n.from.length>24?', ...':''):''}))
      if(v)dl.append(make('dt','',k),make('dd','',v));
    if(!alone(keys[i]))told.append(button('fold '+(titles.get(keys[i])||keys[i]),()=>{open.delete(keys[i]);told.hidden=true;draw();focusOn(boxes.findIndex(b=>b.key===keys[i]))}));
  }
  const others=i=>self.side==='after'?nodes[i].from:self.peer.nodes.flatMap((m,j)=>m.from.includes(i)?[j]:[]);
  self.light=(list)=>{self.lit=new Set(list);for(const b of boxes)b.g.classList.toggle('lit',b.nodes.some(i=>self.lit.has(i)));
    const first=boxes.find(b=>b.g.classList.contains('lit'));if(first)canvas.scrollTo(Math.max(0,first.x*scale-canvas.clientWidth/2),Math.max(0,first.y*scale-canvas.clientHeight/2))};
  let wanted=null;
  function dim(){for(const b of boxes)b.g.classList.toggle('dim',wanted!==null&&!b.nodes.some(i=>wanted.has(i)))}
  self.sift=test=>{wanted=test?new Set(nodes.flatMap((x,i)=>test(x,self.side==='after'?x.from.map(f=>self.peer.nodes[f]):[x])?[i]:[])):null;dim();return wanted?wanted.size:nodes.length};
  function choose(b){if(b.key){open.add(b.key);const first=b.nodes[0];draw();focusOn(boxes.findIndex(c=>c.nodes[0]===first));return}
    tell(b.nodes[0]);self.light([]);self.peer.light(others(b.nodes[0]))}
  function focusOn(k,quiet){if(!boxes[k])return;boxes[lead]?.g.setAttribute('tabindex','-1');lead=k;boxes[k].g.setAttribute('tabindex','0');if(!quiet)boxes[k].g.focus({preventScroll:true});
    const b=boxes[k],x=b.x*scale,y=b.y*scale;if(!quiet&&(y<canvas.scrollTop+20||y>canvas.scrollTop+canvas.clientHeight-20||x<canvas.scrollLeft||x>canvas.scrollLeft+canvas.clientWidth))canvas.scrollTo(Math.max(0,x-canvas.clientWidth/2),Math.max(0,y-canvas.clientHeight/2))}
  function draw(){
    const of=new Map(),item=nodes.map(()=>-1);boxes=[];
    nodes.forEach((n,i)=>{const k=folded(i)?keys[i]:'';
      if(k&&of.has(k)){item[i]=of.get(k);boxes[item[i]].nodes.push(i);return}
      item[i]=boxes.length;if(k)of.set(k,item[i]);boxes.push({key:k,nodes:[i]})});
    for(const b of boxes){const n=nodes[b.nodes[0]],name=titles.get(b.key)||b.key;b.label=b.key?name+' \u00b7 '+b.nodes.length+' nodes':n.look==='end'?n.name.slice(0,28):n.op;
      const fused=b.nodes.find(i=>nodes[i].look==='fused'),codes=b.nodes.find(i=>nodes[i].look==='quantized');
      b.look=b.key?(codes!==undefined?'quantized':fused!==undefined?'fused':'float'):n.look;b.width=Math.max(40,b.label.length*7.3+18)}
    const seen=new Set(),edges=[];
    nodes.forEach((n,i)=>n.reads.forEach(r=>{const a=item[r],b=item[i],k=a*boxes.length+b;if(a!==b&&!seen.has(k)){seen.add(k);edges.push([a,b])}}));
    const placed=layOut(boxes.map(b=>b.width),edges);size=placed;svg.replaceChildren();svg.setAttribute('viewBox','0 0 '+size.width+' '+size.height);
    for(const way of placed.ways){let d='';way.forEach((v,k)=>{const x=placed.x[v],y=placed.y[v],top=boxes[v]?y-13:y,low=boxes[v]?y+13:y;
      if(!k){d='M'+x.toFixed(1)+' '+low;return}
      const p=way[k-1],px=placed.x[p],py=placed.y[p]+(boxes[p]?13:0),my=(py+top)/2;d+='C'+px.toFixed(1)+' '+my+' '+x.toFixed(1)+' '+my+' '+x.toFixed(1)+' '+top});
      svg.append(el('path',{class:'wire',d}))}
    boxes.forEach((b,k)=>{b.x=placed.x[k];b.y=placed.y[k];const n=nodes[b.nodes[0]];
      b.g=el('g',{class:'box '+b.look+(b.key?' fold':''),tabindex:'-1',role:'button',transform:'translate('+b.x.toFixed(1)+' '+b.y+')','aria-label':b.key?b.label+', folded':n.op+' '+n.name+' '+n.type});
      const t=el('text',{});t.textContent=b.label;const title=el('title',{});title.textContent=b.key?b.label:n.op+' '+n.name+'\n'+n.type;
      b.g.append(title,el('rect',{x:-b.width/2,y:-13,width:b.width,height:26,rx:b.look==='end'?13:5}),t);
      b.g.addEventListener('click',()=>{focusOn(boxes.indexOf(b));choose(b)});svg.append(b.g)});
    self.light(self.lit);dim();focusOn(Math.min(lead,boxes.length-1),true);zoom(scale);self.boxes=boxes.length;
  }
  svg.addEventListener('keydown',e=>{const step={ArrowDown:1,ArrowRight:1,ArrowUp:-1,ArrowLeft:-1}[e.key];
    if(step){e.preventDefault();focusOn(Math.min(boxes.length-1,Math.max(0,lead+step)))}else if(e.key==='Enter'||e.key===' '){e.preventDefault();choose(boxes[lead])}});
  canvas.addEventListener('wheel',e=>{if(e.ctrlKey){e.preventDefault();zoom(scale*Math.exp(-e.deltaY/300))}},{passive:false});
  let drag=null;canvas.addEventListener('pointerdown',e=>{if(e.pointerType==='mouse'&&!e.target.closest('.box'))drag=[e.clientX+canvas.scrollLeft,e.clientY+canvas.scrollTop]});
  window.addEventListener('pointermove',e=>{if(drag){canvas.scrollLeft=drag[0]-e.clientX;canvas.scrollTop=drag[1]-e.clientY}});window.addEventListener('pointerup',()=>drag=null);
  const fit=()=>{lead=0;draw();zoom(Math.min(1,Math.max(.3,(canvas.clientWidth-4)/size.width)));canvas.scrollTo((size.width*scale-canvas.clientWidth)/2,0)};
  const find=make('input');find.type='search';find.placeholder='op or name';find.setAttribute('aria-label','Find nodes');
  find.addEventListener('change',()=>{const w=find.value.toLowerCase();if(!w){self.light([]);return}
    const hits=nodes.flatMap((n,i)=>(n.op+' '+n.name).toLowerCase().includes(w)?[i]:[]);self.light(hits);told.replaceChildren(make('p','',hits.length+' nodes found'));told.hidden=false});
  const all=button('unfold all',()=>{for(const k of sizes.keys())open.add(k);fit()});all.disabled=nodes.length>1500;
  root.querySelector('.tools').append(button('\u2212',()=>zoom(scale/1.3)),button('+',()=>zoom(scale*1.3)),button('whole',fit),button('fold all',()=>{open.clear();told.hidden=true;fit()}),all,find);
  root.querySelectorAll('.tools button').forEach((b,k)=>{if(k<2)b.setAttribute('aria-label',k?'larger':'smaller')});
  self.nodes=nodes;self.fit=fit;self.side=root.dataset.side;return self;
}
function drawings(){
  const data=JSON.parse(byId('graphs').textContent),text=i=>data.texts[i];
  const read=list=>list.map(([op,name,type,reads,look,from])=>({op:text(op),name:text(name),type:text(type),reads,look,from}));
  const [before,after]=['before','after'].map(side=>drawing(byId('graph-'+side),read(data[side])));
  before.peer=after;after.peer=before;before.fit();after.fit();drawn.push(before,after);sift();
}
if(byId('graphs')){const shown=byId('graphs').closest('details');let done=false;const once=()=>{if(shown.open&&!done){done=true;drawings()}};shown.addEventListener('toggle',once);once()})";

}  // namespace octavo::api

#endif  // OCTAVO_API_REPORT_DRAWING_H_
