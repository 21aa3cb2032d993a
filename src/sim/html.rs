//! One self-contained HTML page: what a run came to, with pictures.

use super::costs::Line;
use super::engine::Sim;
use super::report::Report;
use super::trace::HEAT_COLUMNS;
use crate::domains::LevelKind;
use serde_json::json;

/// Most rows of the heat map; on wider machines neighbours of one node share a row.
const MAX_ROWS: usize = 960;

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Rows of the heat map, by node: label of the node, first CPU of the row, busy share by column.
fn heat(sim: &Sim) -> serde_json::Value {
    let nodes = &sim.setup.topology.nodes;
    let cpus: usize = nodes.iter().map(|n| n.cpus.weight()).sum();
    let per_row = cpus.div_ceil(MAX_ROWS).max(1);
    let by_node = nodes.iter().filter(|n| !n.cpus.is_empty()).map(|node| {
        let cpus: Vec<_> = node.cpus.iter().collect();
        let rows = cpus.chunks(per_row).map(|chunk| {
            let mut sum = vec![0.0; HEAT_COLUMNS];
            for &cpu in chunk {
                let row = sim.heat_row(cpu).unwrap_or_default();
                sum.iter_mut().zip(row).for_each(|(a, b)| *a += b);
            }
            let scaled = |s: &f64| (s * 100.0 / chunk.len() as f64).round().min(100.0) as u8;
            json!({"cpu": chunk[0], "load": sum.iter().map(scaled).collect::<Vec<_>>()})
        });
        json!({"node": node.id, "rows": rows.collect::<Vec<_>>()})
    });
    by_node.collect()
}

/// The page.
pub fn page(sim: &Sim, report: &Report) -> String {
    let line = |name: &str, lines: &[Line]| {
        let sum = |of: fn(&Line) -> u64| lines.iter().map(of).sum::<u64>();
        let (writes, reads) = (sum(|l| l.accesses), sum(|l| l.reads));
        let time = sum(|l| l.time_ns + l.read_ns);
        let (ms, per) = (time as f64 / 1e6, time as f64 / (writes + reads).max(1) as f64);
        let text = format!("{ms:.3} ms in all, {writes} writes, {reads} reads, {per:.0} ns each");
        json!({"name": name, "value": ms, "text": text})
    };
    let (flag, record) = (report.lines.flag, report.lines.record);
    let levels = report.counters.as_ref().map_or(&[][..], |c| &c.levels);
    let moves: Vec<_> = levels
        .iter()
        .map(|l| {
            let passes = [&l.busy, &l.idle, &l.newidle];
            let n: u64 = passes.iter().map(|p| p.lb_gained + p.alb_pushed).sum();
            let name = match l.level {
                LevelKind::Numa(nth) => format!("NUMA {nth}"),
                level => level.to_string(),
            };
            json!({"name": name, "value": n, "text": n.to_string()})
        })
        .collect();
    let shares = report.shares.iter().map(
        |s| json!({"name": s.cause.name(), "value": s.pct, "text": format!("{:.3} %", s.pct)}),
    );
    let idle = json!({"name": "idle", "value": report.idle_pct,
        "text": format!("{:.3} %", report.idle_pct)});
    let data = json!({
        "seconds": report.duration_ns as f64 / 1e9,
        "columns": HEAT_COLUMNS,
        "heat": heat(sim),
        "moves": moves,
        "lines": [
            line("serialize flag", &[flag]),
            line("nohz mask", &report.lines.mask),
            line("nohz record", &[record]),
        ],
        "shares": shares.chain([idle]).collect::<Vec<_>>(),
    });
    // A script's text ends at the first `</`.
    let data = data.to_string().replace("</", "<\\/");
    let settings: String = report
        .settings
        .iter()
        .map(|(name, value)| format!("<tr><td>{name}</td><td>{}</td></tr>", escape(&value)))
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>baton sim</title><style>{STYLE}</style></head><body>\
         <h1>baton sim: {} CPUs, {} s, seed {}</h1>\
         <h2>Load per CPU over time, by node</h2><canvas id=\"heat\"></canvas>\
         <div class=\"row\"><div><h2>CPU time by cause</h2><div id=\"shares\"></div></div>\
         <div><h2>Moves by the balancer, by level</h2><div id=\"moves\"></div></div>\
         <div><h2>Time at shared lines</h2><div id=\"lines\"></div></div></div>\
         <h2>Summary</h2><pre>{}</pre><h2>Settings</h2><table>{settings}</table>\
         <script>const D={data};{SCRIPT}</script></body></html>\n",
        report.cpus,
        report.duration_ns as f64 / 1e9,
        report.seed,
        escape(&report.text()),
    )
}

const STYLE: &str = "body{font:14px system-ui,'DejaVu Sans',sans-serif;color:#22303c;margin:2em;\
    max-width:1200px}h1{font-size:22px}h2{font-size:16px;margin:1.4em 0 .5em}.row{display:flex;\
    gap:2.5em;flex-wrap:wrap}.bar{display:grid;grid-template-columns:130px 180px auto;gap:8px;\
    margin:3px 0;align-items:center}.bar i{display:block;height:12px;background:#2b6cb0;\
    border-radius:2px}.bar span:last-child{color:#6b7883}pre{background:#f4f6f8;padding:1em;\
    overflow:auto}td{padding:1px 14px 1px 0}";

const SCRIPT: &str = r##"
const bars=(id,list)=>{const top=Math.max(...list.map(b=>b.value),1e-9);
for(const b of list){const d=document.createElement("div");d.className="bar";
const n=document.createElement("span");n.textContent=b.name;
const w=document.createElement("span"),i=document.createElement("i");
i.style.width=(100*b.value/top)+"%";w.append(i);
const t=document.createElement("span");t.textContent=b.text;d.append(n,w,t);
document.getElementById(id).append(d)}};
bars("shares",D.shares);bars("moves",D.moves);bars("lines",D.lines);
const c=document.getElementById("heat"),g=c.getContext("2d");
const rows=D.heat.reduce((n,h)=>n+h.rows.length,0);
const rh=Math.max(1,Math.min(14,Math.floor(560/Math.max(rows,1)))),cw=4,left=140,gap=6;
c.width=left+cw*D.columns+40;c.height=rows*rh+D.heat.length*gap+60;
g.font="12px system-ui,'DejaVu Sans',sans-serif";
const mix=p=>{const a=[247,250,252],m=[66,153,225],b=[26,32,84];
const t=p<50?p/50:(p-50)/50,f=p<50?a:m,e=p<50?m:b;
return "rgb("+f.map((v,i)=>Math.round(v+(e[i]-v)*t)).join(",")+")"};
let y=6;for(const h of D.heat){g.fillStyle="#22303c";g.textAlign="right";
const first=y;for(const r of h.rows){r.load.forEach((p,x)=>{g.fillStyle=mix(p);
g.fillRect(left+x*cw,y,cw,rh)});y+=rh}
g.fillStyle="#22303c";g.fillText("node "+h.node+", CPU "+(h.rows[0]?h.rows[0].cpu:"")+"…",left-8,(first+y)/2+4);
g.strokeStyle="#cbd5e0";g.strokeRect(left-.5,first-.5,cw*D.columns+1,y-first+1);y+=gap}
g.fillStyle="#22303c";g.textAlign="center";
for(let i=0;i<=5;i++)g.fillText((D.seconds*i/5).toFixed(D.seconds<10?3:1)+" s",left+cw*D.columns*i/5,y+14);
g.textAlign="left";g.fillText("idle",left,y+36);for(let i=0;i<=100;i++){g.fillStyle=mix(i);
g.fillRect(left+34+i*2,y+26,2,12)}g.fillStyle="#22303c";g.fillText("busy",left+244,y+36);
"##;
