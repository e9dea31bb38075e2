#include "report/style.hpp"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace spp::report {
namespace {

/// A class of parts: its colours on light and on dark ground, and what is drawn over it.
struct Look {
  std::string_view name, light, dark;
  std::string_view hatch;  // content of a pattern of 8 x 8; "": plain
};

constexpr std::string_view rising = "M-2 2l4-4M0 8l8-8M6 10l4-4";
constexpr std::string_view falling = "M-2 6l4 4M0 0l8 8M6-2l4 4";
constexpr std::string_view level = "M0 2h8M0 6h8";
constexpr std::string_view upright = "M2 0v8M6 0v8";
constexpr std::string_view crossed = "M0 0l8 8M8 0l-8 8";
constexpr std::string_view dotted = "M1 2h2M5 6h2";

// Kernels are plain; what is waited for is hatched, each axis in its own way.
constexpr std::array<Look, 20> looks{
    {{"k-attention", "#2b6cb0", "#63a4e8", ""},   {"k-gemm", "#1a8a7d", "#4fc3b5", ""},
     {"k-elementwise", "#8793a3", "#8f9cad", ""}, {"k-optimizer", "#7a5bb0", "#a98be0", ""},
     {"k-launch", "#5a4632", "#b79a78", upright}, {"k-cp", "#d9542b", "#f08a5d", rising},
     {"k-tp", "#c2337a", "#ec6fac", falling},     {"k-ep", "#b8860b", "#e3b341", level},
     {"k-dp", "#a03226", "#e57368", crossed},     {"k-pp", "#6b6b2a", "#b9b95a", upright},
     {"k-bubble", "#8d98a8", "#6b7787", dotted},  {"k-predicted", "#6b93c0", "#5680ad", rising},
     {"m-parameters", "#2b6cb0", "#63a4e8", ""},  {"m-gradients", "#1a8a7d", "#4fc3b5", rising},
     {"m-optimizer", "#7a5bb0", "#a98be0", ""},   {"m-activations", "#d98324", "#f2a65a", falling},
     {"m-attention", "#b03a5b", "#ee7f9c", ""},   {"m-communication", "#6b6b2a", "#b9b95a", level},
     {"m-logits", "#4b5a6b", "#9fb0c3", crossed}, {"m-process", "#8d98a8", "#6b7787", dotted}}};

struct Choice {
  std::string_view light, dark;
};
/// Grounds of letters: pale on light, deep on dark, so that the same text is read on all.
constexpr std::array<Choice, 10> choices{{{"#bcd7f2", "#234a73"},
                                          {"#f8d3b0", "#70421a"},
                                          {"#c3e6c6", "#225a33"},
                                          {"#e5cdf2", "#553072"},
                                          {"#f6e39a", "#5d4f12"},
                                          {"#f4c4cf", "#702a3f"},
                                          {"#bfe6e4", "#1d5756"},
                                          {"#d8d8dc", "#44484f"},
                                          {"#dfe5b0", "#4b5220"},
                                          {"#e6d3c3", "#5b4433"}}};
constexpr std::array<Choice, 6> points{{{"#2b6cb0", "#63a4e8"},
                                        {"#d9542b", "#f08a5d"},
                                        {"#1a8a7d", "#4fc3b5"},
                                        {"#7a5bb0", "#a98be0"},
                                        {"#b8860b", "#e3b341"},
                                        {"#c2337a", "#ec6fac"}}};
constexpr std::array<Choice, 7> shades{{{"#eaf2fa", "#16222f"},
                                        {"#d3e3f3", "#1b3048"},
                                        {"#b3cfea", "#204063"},
                                        {"#8ab4dd", "#27547f"},
                                        {"#3a75ae", "#4f8cc4"},
                                        {"#2b6199", "#6fa4d6"},
                                        {"#1a4676", "#9cc3e8"}}};

constexpr std::string_view base_rules = R"(
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;overflow-wrap:break-word}
.page{max-width:68rem;margin:0 auto;padding:1.75rem 1rem 3rem}
header{border-bottom:1px solid var(--rule);padding-bottom:1rem;margin-bottom:1.5rem}
.brand{font-size:.8rem;letter-spacing:.08em;text-transform:uppercase;color:var(--quiet);margin:0 0 .35rem}
h1{font-size:clamp(1.25rem,1.05rem + .9vw,1.65rem);line-height:1.25;text-wrap:balance;margin:0;font-weight:650;letter-spacing:-.01em}
h2{font-size:clamp(1.2rem,1rem + .9vw,1.55rem);line-height:1.25;margin:0 0 .25rem;font-weight:650;letter-spacing:-.01em}
h3{font-size:1.05rem;margin:2rem 0 .6rem;font-weight:650}
h4{font-size:.9rem;margin:.9rem 0 .5rem;font-weight:600}
p{margin:.5rem 0}
a{color:var(--link)}
section{margin:0 0 3rem}
section+section{border-top:1px solid var(--rule);padding-top:2rem}
.file{color:var(--quiet);font-size:.85rem;margin:.15rem 0 1rem}
.quiet{color:var(--quiet);font-size:.9rem}
nav ol{margin:.25rem 0 0;padding-left:1.3rem}
nav{margin-bottom:2rem}
.verdict{border-left:4px solid var(--quiet);background:var(--panel);padding:.7rem 1rem;margin:1rem 0;border-radius:0 6px 6px 0;font-size:1.08rem}
.verdict strong{display:block;font-size:.78rem;letter-spacing:.05em;text-transform:uppercase;font-weight:650}
.verdict.good{border-color:var(--good)}.verdict.good strong{color:var(--good)}
.verdict.bad{border-color:var(--bad)}.verdict.bad strong{color:var(--bad)}
.verdict.note{border-color:var(--warn);font-size:.95rem}.verdict.note strong{color:var(--warn)}
.stats{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.2rem,1fr));gap:1px;margin:1.1rem 0;background:var(--rule);border:1px solid var(--rule);border-radius:8px;overflow:hidden}
.stats div{background:var(--ground);padding:.65rem .85rem}
.stats dt{color:var(--quiet);font-size:.78rem}
.stats dd{margin:.1rem 0 0;font-size:1.3rem;line-height:1.25;font-weight:620;font-variant-numeric:tabular-nums}
.stats small{display:block;font-size:.78rem;font-weight:400;color:var(--quiet)}
.reasons{margin:.75rem 0;padding-left:1.1rem}
.reasons li{margin:.2rem 0}
figure{margin:2rem 0;padding:0;break-inside:avoid}
figcaption{font-weight:650;font-size:1.05rem}
.about,.under{color:var(--quiet);font-size:.85rem;margin:.15rem 0 .75rem;max-width:46rem}
.under{margin:.5rem 0}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.25rem 1.1rem;margin:.4rem 0 .8rem;padding:0;font-size:.83rem}
.legend li{display:flex;align-items:center;gap:.45rem}
.legend.long{flex-direction:column;gap:.3rem;margin-top:.9rem}
.legend.ramp{align-items:center;gap:0;margin-top:.9rem}.legend.ramp span{margin:0 .6rem 0 0}.legend.ramp span:last-child{margin:0 0 0 .6rem}
.swatch{flex:none;overflow:visible}
svg.plot{display:block;overflow:visible}
.bar{margin:.55rem 0;display:grid;grid-template-columns:1fr auto;column-gap:1rem;font-size:.86rem}
.bd{grid-column:1/-1}
.bv{font-variant-numeric:tabular-nums;white-space:nowrap;color:var(--ink)}
.bar.strong .bl,.bar.strong .bv{font-weight:650}
.rows{margin-left:5.2rem}
.points{margin:1.6rem 1rem 0 3.9rem}
.machine{max-width:44rem;margin-top:.6rem}
.axes{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:.25rem 2.5rem}
.axes .rows{margin-left:3.6rem}
text{font:12px/1 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:var(--ink)}
text.tick{font-size:11px;fill:var(--quiet);font-variant-numeric:tabular-nums}
text.marked{fill:var(--ink);font-weight:600}
text.axis-title{font-weight:600}
text.row{font-size:12px;font-weight:600}
text.in{font-weight:650;font-size:12px}
text.heat{font-size:11.5px;font-variant-numeric:tabular-nums}
text.heat.deep{fill:var(--on-deep)}
line{stroke:var(--rule);stroke-width:1}
line.grid{stroke:var(--grid)}
line.asked{stroke:var(--ink);stroke-width:1;stroke-dasharray:1 4;opacity:.55}
line.halo{stroke:var(--ground);stroke-width:4.5}
line.whisker{stroke:var(--ink);stroke-width:1.6}
line.mark{stroke:var(--ink);stroke-width:1.6;stroke-dasharray:4 3}
line.equal{stroke:var(--ink);stroke-width:1.2}
line.band{stroke:var(--quiet);stroke-dasharray:2 4}
line.wire{stroke:var(--quiet);stroke-width:1.4}
.part{stroke:var(--ground);stroke-width:1}
.part.open{stroke:var(--ink);stroke-dasharray:3 2;opacity:.75}
.point{stroke:var(--ground);stroke-width:.8}
.cell{stroke:var(--edge);stroke-width:1}
.q-none{fill:var(--panel);stroke:var(--edge);stroke-dasharray:3 3}
.b-gpu{fill:var(--c0);stroke:var(--edge)}.b-switch{fill:var(--c7);stroke:var(--edge)}.b-nic{fill:var(--c1);stroke:var(--edge)}.b-fabric{fill:var(--c6);stroke:var(--edge)}
.lane{stroke:var(--ground);stroke-width:1}svg.arrow{overflow:visible}.machine text.tick{paint-order:stroke;stroke:var(--ground);stroke-width:4px;stroke-linejoin:round}
.ground{fill:var(--ground)}
.scroll{overflow-x:auto;margin:.5rem 0}
table{border-collapse:collapse;font-size:.85rem;min-width:min(100%,26rem)}
caption{text-align:left;color:var(--quiet);font-size:.8rem;padding-bottom:.3rem}
th,td{text-align:left;padding:.35rem 1.1rem .35rem 0;border-bottom:1px solid var(--grid);vertical-align:top}td:not(.n){min-width:5.5rem}td:last-child:not(.n){min-width:10rem}td:only-child{min-width:0}
th{font-weight:600;color:var(--quiet);border-bottom-color:var(--rule)}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
details{margin:.7rem 0;font-size:.95rem}
summary{cursor:pointer;color:var(--link);font-size:.87rem}
pre{font:12px/1.4 ui-monospace,"DejaVu Sans Mono",monospace;background:var(--panel);padding:.8rem;border-radius:6px;margin:.5rem 0}
footer{color:var(--quiet);font-size:.82rem;border-top:1px solid var(--rule);padding-top:1rem}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
@media (min-width:900px){.bars .bar{grid-template-columns:minmax(13rem,21rem) 1fr 8.5rem;align-items:center;margin:.4rem 0}.bars .bl{grid-column:1;grid-row:1}.bars .bd{grid-column:2;grid-row:1}.bars .bv{grid-column:3;grid-row:1;text-align:right}}
@media (max-width:500px){body{font-size:14px}th,td{padding-right:.6rem}.n{white-space:normal}}
)";

constexpr std::string_view paper_rules = R"(
@media print{body{font-size:10pt}*{-webkit-print-color-adjust:exact;print-color-adjust:exact}.page{max-width:none;padding:0}.scroll{overflow:visible}a{color:inherit;text-decoration:none}tr{break-inside:avoid}h3{break-after:avoid}}
)";

std::string variables(bool dark) {
  std::string text = dark ? "--ground:#12161c;--ink:#e8ebf0;--quiet:#a3adba;--rule:#333c48;--grid:#"
                            "262d37;--panel:#1a2028;"
                            "--edge:#5a6675;--link:#7fb6f5;--good:#5fce92;--bad:#ff8f85;--warn:#"
                            "e9bd5c;--on-deep:#0b1117;"
                          : "--ground:#ffffff;--ink:#1a2029;--quiet:#586374;--rule:#d3d9e1;--grid:#"
                            "e7ebf0;--panel:#f4f6f9;"
                            "--edge:#97a3b3;--link:#1f5fae;--good:#17724a;--bad:#b3261e;--warn:#"
                            "8a6100;--on-deep:#ffffff;";
  for (const Look& look : looks) {
    text += fmt::format("--{}:{};", look.name, dark ? look.dark : look.light);
  }
  for (std::size_t i = 0; i < choices.size(); ++i) {
    text += fmt::format("--c{}:{};", i, dark ? choices[i].dark : choices[i].light);
  }
  for (std::size_t i = 0; i < points.size(); ++i) {
    text += fmt::format("--q{}:{};", i, dark ? points[i].dark : points[i].light);
  }
  for (std::size_t i = 0; i < shades.size(); ++i) {
    text += fmt::format("--h{}:{};", i, dark ? shades[i].dark : shades[i].light);
  }
  return text;
}

std::string classes() {
  std::string text;
  for (const Look& look : looks) {
    text += look.hatch.empty() ? fmt::format(".{0}{{fill:var(--{0})}}", look.name)
                               : fmt::format(".{0}{{fill:url(#p-{0})}}", look.name);
  }
  for (std::size_t i = 0; i < choices.size(); ++i) {
    text += fmt::format(".c-{0}{{fill:var(--c{0})}}", i);
  }
  for (std::size_t i = 0; i < points.size(); ++i) {
    text += fmt::format(".q-{0}{{fill:var(--q{0})}}", i);
  }
  for (std::size_t i = 0; i < shades.size(); ++i) {
    text += fmt::format(".h-{0}{{fill:var(--h{0})}}", i);
  }
  return text;
}

}  // namespace

std::string style_sheet() {
  return fmt::format(
             ":root{{color-scheme:light dark;{}}}\n@media "
             "(prefers-color-scheme:dark){{:root{{{}}}}}\n",
             variables(false), variables(true)) +
         std::string(base_rules) + classes() + std::string(paper_rules) +
         // On paper the light colours, whatever the screen has.
         fmt::format("@media print{{:root{{{}}}}}\n", variables(false));
}

std::string patterns() {
  std::string text =
      "<svg width=\"0\" height=\"0\" style=\"position:absolute\" aria-hidden=\"true\"><defs>";
  for (const Look& look : looks) {
    if (!look.hatch.empty()) {
      text += fmt::format(
          "<pattern id=\"p-{0}\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\"><rect "
          "width=\"8\" height=\"8\" style=\"fill:var(--{0})\"/><path d=\"{1}\" "
          "style=\"stroke:var(--ground);stroke-width:1.3;stroke-opacity:.75;fill:none\"/></"
          "pattern>",
          look.name, look.hatch);
    }
  }
  return text + "</defs></svg>\n";
}

}  // namespace spp::report
