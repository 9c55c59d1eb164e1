// The report: every figure drawn from the specification that stands in it.
"use strict";
for (const figure of document.querySelectorAll("figure.chart")) {
  const spec = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
  window.replicodeChart(figure).draw(spec);
}
