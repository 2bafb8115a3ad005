"""The look of the HTML report: light and dark, wide and narrow, screen and paper."""

CSS = """
:root{--ink:#16202c;--muted:#5b6775;--paper:#fff;--ground:#f3f5f8;--rule:#e1e6ec;--accent:#d61f69;--accent-ink:#fff;
--good:#15803d;--bad:#c81e1e;--note:#8a5a00;--note-ground:#fff6dd;--note-rule:#f0d48a;
--shadow:0 1px 2px #1020300f,0 6px 24px #10203010;
color-scheme:light dark}
@media (prefers-color-scheme:dark){:root{--ink:#e8edf3;--muted:#9aa7b5;--paper:#151c25;--ground:#0c1117;--rule:#2a3542;
--accent:#ff6fa5;--accent-ink:#1b0a12;--good:#5fd38a;--bad:#ff7b7b;--note:#f2cf73;--note-ground:#2b2411;--note-rule:#5c4a17;
--shadow:none}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;
-webkit-text-size-adjust:100%}
main,header.top,footer{max-width:1120px;margin:0 auto;padding:0 20px}
header.top{display:flex;flex-wrap:wrap;gap:4px 16px;
align-items:baseline;padding-top:22px;color:var(--muted);font-size:14px}
header.top b{color:var(--ink);font-size:17px;letter-spacing:-.01em}
header.top span:last-child{margin-left:auto;overflow-wrap:anywhere}
.banner{margin:16px 0 0;padding:10px 16px;border:1px solid var(--note-rule);border-radius:10px;
background:var(--note-ground);color:var(--note)}
.banner b{letter-spacing:.06em}
.card{background:var(--paper);border:1px solid var(--rule);border-radius:14px;
box-shadow:var(--shadow);padding:24px;margin:18px 0}
.hero{padding:30px 28px}
.hero .asked{color:var(--muted);margin:0 0 4px;overflow-wrap:anywhere}
h1{font-size:clamp(28px,5vw,46px);line-height:1.1;letter-spacing:-.025em;margin:0 0 6px;overflow-wrap:anywhere}
.hero .lead{margin:0;color:var(--muted);max-width:62ch}
.hero .lead.bad{color:var(--bad)}
h2{font-size:19px;letter-spacing:-.01em;margin:0 0 4px}
.sub{color:var(--muted);margin:0 0 14px;font-size:14px;max-width:80ch}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(200px,1fr));gap:14px;margin-top:24px}
.tile{border-left:3px solid var(--rule);padding:2px 0 2px 14px}
.tile:first-child{border-color:var(--accent)}
.tile .what{color:var(--muted);font-size:13px}
.tile .value{font-size:27px;font-weight:650;letter-spacing:-.02em;line-height:1.25;font-variant-numeric:tabular-nums}
.tile .small{color:var(--muted);font-size:13px}
.pair{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:18px}
.pair .card{margin:0}
.scroll{overflow-x:auto;margin:0 -8px;padding:0 8px}
table{border-collapse:collapse;width:100%;font-size:14.5px;font-variant-numeric:tabular-nums}
th{font-weight:550;color:var(--muted);font-size:13px;text-align:left;white-space:nowrap}
th,td{padding:7px 12px 7px 0;border-bottom:1px solid var(--rule);vertical-align:top}
tr:last-child>td,tr:last-child>th[scope=row]{border-bottom:0}
th[scope=row]{color:var(--ink);font-size:14.5px;font-weight:500;white-space:normal}
td.n,th.n{text-align:right;white-space:nowrap}
td.n+td.why,th.n+th:not(.n){padding-left:10px}
td.c{white-space:nowrap}
td.why{min-width:230px}
tr.sum>*{font-weight:650}
tr.chosen>td,tr.chosen>th{background:color-mix(in srgb,var(--accent) 9%,transparent)}
tr.failed td.what{color:var(--bad)}
.tag{display:inline-block;background:var(--accent);color:var(--accent-ink);border-radius:99px;padding:1px 9px;
font-size:12px;font-weight:600}
.good{color:var(--good)}.over{color:var(--bad)}.dim{color:var(--muted)}
figure{margin:0}
figure .narrow{display:none}
figure svg{display:block;height:auto}
figure .narrow svg{max-width:520px;margin:0 auto}
dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:5px 20px;margin:0;font-size:14.5px}
dt{color:var(--muted)}dd{margin:0;overflow-wrap:anywhere}
code{font:13.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;
background:var(--ground);border:1px solid var(--rule);border-radius:6px;padding:1px 6px;overflow-wrap:anywhere}
ul{margin:8px 0 0;padding-left:20px}
details>summary{cursor:pointer;color:var(--muted);font-size:14px;margin-top:10px}
footer{color:var(--muted);font-size:13px;padding-top:6px;padding-bottom:40px}
@media (max-width:820px){.pair{grid-template-columns:minmax(0,1fr)}}
@media (max-width:720px){figure .wide{display:none}figure .narrow{display:block}}
@media (max-width:640px){main,header.top,footer{padding-left:12px;padding-right:12px}
.card{padding:16px 14px;border-radius:12px}.hero{padding:20px 16px}
dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:8px}
header.top span:last-child{margin-left:0}.tiles{grid-template-columns:1fr}}
@media (max-width:640px){table.stack thead{display:none}table.stack,table.stack tbody{display:block}
table.stack tr{display:flex;flex-wrap:wrap;gap:0 16px;padding:9px 0;border-bottom:1px solid var(--rule)}
table.stack tr:last-child{border-bottom:0}table.stack tr>*{border:0;padding:1px 0!important}
table.stack th[scope=row],table.stack td.c,table.stack td.why,table.stack td.what{flex:0 0 100%}
table.stack td.c,table.stack th[scope=row]{font-weight:650}table.stack td:empty{display:none}
table.stack td.n[data-l]::before{content:attr(data-l) " ";color:var(--muted);font-size:13px}
table.stack tr.chosen{background:color-mix(in srgb,var(--accent) 9%,transparent);margin:0 -8px;padding:9px 8px}
table.stack tr.chosen>*{background:none}.stack td.why{color:var(--muted)}}
@media print{body{background:#fff}.card{box-shadow:none;break-inside:avoid}}
"""
