"""How a report looks: one column on a phone, two beside each other where there is room."""

from __future__ import annotations

# The curves' colours have a contrast of at least 3 to 1 with the page's, letters at least 4.5.
STYLE = """
:root {
  color-scheme: light dark;
  --page: #fbfaf8; --card: #ffffff; --ink: #1f2328; --soft: #5b6370; --line: #dcdfe4;
  --grid: #e6e8ec; --warn: #b42318; --warn-page: #fdecea;
  --c0: #0b63ce; --c1: #c2410c; --c2: #15803d; --c3: #9333ea; --c4: #0e7490; --c5: #be185d;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --card: #1c2026; --ink: #e8eaed; --soft: #a3abb8; --line: #343a43;
    --grid: #2a3038; --warn: #ff8a80; --warn-page: #3a1f1d;
    --c0: #6cb2ff; --c1: #ff9a5c; --c2: #5fd08a; --c3: #c9a2ff; --c4: #5cd0e6; --c5: #ff8fc0;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1rem; max-width: 78rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  overflow-wrap: anywhere; -webkit-text-size-adjust: 100%;
}
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0.5rem 0 0.25rem; }
header + header { margin-top: 2rem; }
h2 { font-size: 1.2rem; margin: 2rem 0 0.75rem; }
h3 { font-size: 1rem; margin: 0; }
p { margin: 0.25rem 0; }
.soft, .unit, .facts, .none, dt { color: var(--soft); }
.unit, .facts, .legend, .none, dt { font-size: 0.85rem; }
.notes { background: var(--warn-page); border-left: 4px solid var(--warn); border-radius: 4px;
  padding: 0.5rem 0.75rem; margin: 1rem 0; }
.notes ul { margin: 0.25rem 0; padding-left: 1.2rem; }
.progress { height: 0.6rem; border-radius: 0.3rem; background: var(--line); overflow: hidden;
  margin: 0.75rem 0; }
.progress div { height: 100%; background: var(--c0); }
.figures { display: grid; gap: 0.6rem; margin: 1rem 0 0;
  grid-template-columns: repeat(auto-fill, minmax(max(9rem, 18%), 1fr)); }
.figures div, figure, details, .sample { background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; }
.figures div { padding: 0.5rem 0.75rem; }
.figures dt { margin: 0; }
.figures dd { margin: 0; font-size: 1.2rem; font-weight: 600; line-height: 1.3;
  font-variant-numeric: tabular-nums; }
.figures small { display: block; font-size: 0.8rem; font-weight: 400; color: var(--soft); }
.charts { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); }
figure { margin: 0; padding: 0.75rem; min-width: 0; }
.plot { display: grid; grid-template: 14rem 1.4rem / 3.2rem minmax(0, 1fr); margin-top: 0.75rem;
  padding-right: 1rem; }
.plot svg { grid-area: 1 / 2; width: 100%; height: 100%; display: block; overflow: visible; }
.plot .y { grid-area: 1 / 1; position: relative; }
.plot .x { grid-area: 2 / 2; position: relative; }
.plot span { position: absolute; font-size: 0.75rem; color: var(--soft); white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.plot .y span { right: 0.5rem; transform: translateY(-50%); }
.plot .x span { top: 0.3rem; transform: translateX(-50%); }
svg path { fill: none; vector-effect: non-scaling-stroke; stroke-linejoin: round; }
svg .grid { stroke: var(--grid); stroke-width: 1px; }
svg .line, svg .dots { stroke-width: 2px; }
svg .dots { stroke-width: 1.5px; stroke-dasharray: 5 4; }
svg .faint { stroke-width: 1px; opacity: 0.45; }
svg .dot { stroke-width: 7px; stroke-linecap: round; }
svg .resume { stroke: var(--soft); stroke-width: 1px; stroke-dasharray: 2 3; }
svg .skip { stroke: var(--warn); stroke-width: 2px; }
svg .c0 { stroke: var(--c0); } svg .c1 { stroke: var(--c1); } svg .c2 { stroke: var(--c2); }
svg .c3 { stroke: var(--c3); } svg .c4 { stroke: var(--c4); } svg .c5 { stroke: var(--c5); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; padding: 0;
  margin: 0.5rem 0 0; }
.legend i { display: inline-block; width: 1.3rem; height: 0; margin-right: 0.4rem;
  vertical-align: middle; border-top: 3px solid currentColor; }
.legend .faint { opacity: 0.5; border-top-width: 1px; }
.legend .dots { border-top-style: dashed; }
.legend .resume { color: var(--soft); border-top: 2px dotted; }
.legend .skip { color: var(--warn); }
.legend .c0 { color: var(--c0); } .legend .c1 { color: var(--c1); }
.legend .c2 { color: var(--c2); } .legend .c3 { color: var(--c3); }
.legend .c4 { color: var(--c4); } .legend .c5 { color: var(--c5); }
.sample { padding: 0.5rem 0.75rem; margin: 0.6rem 0; }
pre { margin: 0; white-space: pre-wrap; unicode-bidi: isolate;
  font: 0.85rem/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
details { margin: 0.6rem 0; padding: 0.6rem 0.75rem; }
summary { cursor: pointer; font-weight: 600; }
details pre { margin-top: 0.5rem; }
table { border-collapse: collapse; width: 100%; margin-top: 0.5rem; font-size: 0.9rem; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 0.75rem 0.25rem 0;
  border-top: 1px solid var(--line); }
th { font-weight: 500; color: var(--soft); width: 35%; }
.grid th { width: auto; }
.grid td { font-variant-numeric: tabular-nums; }
footer { margin-top: 2rem; font-size: 0.85rem; color: var(--soft); }
@media print { .charts { display: block; } figure { break-inside: avoid; margin-bottom: 1rem; } }
"""
