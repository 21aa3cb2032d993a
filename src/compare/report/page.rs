//! The frame of the page: style, and what every piece of text goes through.

/// Text as HTML.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Colours are variables that dark mode replaces; wide tables scroll inside their box.
const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c2630; --muted: #5c6873; --back: #ffffff; --card: #f5f7f9;
  --line: #d8dee4; --s0: #2563b0; --s1: #c2570c; --s2: #7e3ab0; --s3: #0e7c86; --good: #15703a;
  --bad: #b42318; --noise: #8a94a030; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaee; --muted: #9ba7b3; --back: #12171c; --card: #1b2229; --line: #35404b;
    --s0: #6cabf2; --s1: #f5954a; --s2: #c08bf0; --s3: #45c4cf; --good: #4cc77a; --bad: #ff8a7d;
    --noise: #9ba7b330; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 20px 16px 48px; background: var(--back);
  color: var(--ink); font: 16px/1.5 system-ui, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 4px; }
h2 { font-size: 1.15rem; margin: 32px 0 8px; }
h3 { font-size: 1rem; margin: 0 0 6px; font-weight: 600; }
p { margin: 4px 0 12px; }
.muted, figcaption { color: var(--muted); font-size: .9rem; }
.rows, .cards { display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); }
.cards { grid-template-columns: repeat(auto-fill, minmax(min(100%, 260px), 1fr)); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 14px; }
.big { font-size: 1.6rem; font-weight: 650; margin: 2px 0; }
.pill { display: inline-block; padding: 1px 10px; border-radius: 99px; font-weight: 600; font-size: .9rem;
  border: 1.5px solid currentColor; }
.better { color: var(--good); } .worse { color: var(--bad); } .no_call { color: var(--muted); }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px 10px; min-width: 0; }
figcaption { padding: 0 4px 4px; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--muted); font-family: inherit; } svg .name { fill: var(--ink); }
svg .verdict { font-weight: 600; fill: currentColor; }
.grid { stroke: var(--line); stroke-width: 1; } .axis { stroke: var(--muted); stroke-width: 1; }
.zero { stroke: var(--ink); stroke-width: 1.2; stroke-dasharray: 5 4; } .noise { fill: var(--noise); }
.s0 { --c: var(--s0); } .s1 { --c: var(--s1); } .s2 { --c: var(--s2); } .s3 { --c: var(--s3); }
.full { fill: var(--c); stroke: none; } .hollow { fill: none; stroke: var(--c); stroke-width: 1.8; }
.curve { fill: none; stroke: var(--c); stroke-width: 2.2; } .bar { stroke: var(--c); stroke-width: 2.2; }
.cross { stroke: var(--c); stroke-width: 2.6; fill: none; }
.key { display: inline-flex; align-items: center; gap: 6px; margin-right: 14px; }
.key i { width: 11px; height: 11px; border-radius: 50%; background: var(--c); flex: none; }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 10px; }
.table { margin-bottom: 14px; } .forest { max-width: 560px; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { padding: 6px 12px; text-align: right; border-bottom: 1px solid var(--line);
  font-variant-numeric: tabular-nums; overflow-wrap: normal; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } tr:last-child td { border-bottom: 0; }
th { color: var(--muted); font-weight: 600; }
th + th { white-space: normal; overflow-wrap: anywhere; min-width: 5.5em; vertical-align: bottom; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 16px; margin: 0; font-size: .92rem; }
dt { color: var(--muted); } dd { margin: 0; }
a { color: inherit; } .warn { color: var(--bad); }
.invalid { list-style: none; margin: 0; padding: 0; }
.invalid li { padding: 8px 12px; border-left: 3px solid var(--c); margin-bottom: 8px; background: var(--card); }
@media (max-width: 560px) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: 8px; }
  th, td { padding: 6px 8px; } td:first-child, th:first-child { white-space: normal; min-width: 7em; } }
summary { cursor: pointer; padding: 4px 0; } details { margin: 8px 0; }
";

/// The whole document. It forbids itself any request: the policy allows its own style and nothing
/// else.
pub(super) fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        escape(title)
    )
}
