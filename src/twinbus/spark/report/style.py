"""How the report looks: in the light and in the dark, on a wide screen and on a telephone."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--ink:#1c2330;--soft:#5b6575;--paper:#fff;--faint:#d9dee7;--stripe:#f5f7fa;--blue:#2f6fde;
--red:#c8372d;--amber:#d98a00;--green:#2c8a4b}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ef;--soft:#9aa5b5;--paper:#151a22;--faint:#333c4a;--stripe:#1b212b;
--blue:#6aa0ff;--red:#ff7a70;--amber:#ffbe4d;--green:#68cf8b}}
body{background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif;margin:0}
main{max-width:1000px;margin:auto;padding:24px}h1{font-size:24px;line-height:1.25}
h2{font-size:18px;margin:40px 0 8px}h3{font-size:15px;margin:24px 0 4px}p{margin:8px 0;max-width:75ch}
.wide{overflow-x:auto}.soft{color:var(--soft)}
table{border-collapse:collapse;min-width:min(100%,480px);font-variant-numeric:tabular-nums}
th,td{padding:4px 12px 4px 0;border-bottom:1px solid var(--faint);text-align:right;white-space:nowrap}
th{color:var(--soft);font-weight:600}tr.total td{font-weight:600}
th:first-child,td:first-child,td.text,th.text{text-align:left}td.long{white-space:normal;min-width:220px}
.verdict{font-size:20px;font-weight:600;padding:10px 14px;border-left:6px solid;background:var(--stripe)}
.good{border-color:var(--green)}.bad{border-color:var(--red)}.unsure{border-color:var(--amber)}
svg{width:100%;min-width:800px;height:auto;display:block}svg text{fill:var(--ink);font-size:12px}
.grid{stroke:var(--faint)}.line{fill:none;stroke:var(--blue);stroke-width:1.5}.area{fill:var(--blue);opacity:.15}
.column{fill:var(--blue)}.suspected{fill:var(--amber)}.out{fill:var(--red)}
.key{display:inline-block;width:10px;height:10px;margin:0 4px 0 12px}.key.suspected{background:var(--amber)}
.key.out{background:var(--red)}
@media(max-width:600px){main{padding:16px}td:first-child{white-space:normal}h1{font-size:21px}.verdict{font-size:18px}}
"""
