// Charts: a Vega-Lite specification drawn into a figure, with switches for its lines and buttons for zoom.
// Expressions are interpreted (ast), never compiled, so that a strict Content-Security-Policy holds.
"use strict";
window.replicodeChart = (function () {
  const OPTIONS = {
    actions: false,
    ast: true,
    renderer: "svg",
    defaultStyle: false,
    tooltip: { disableDefaultStyle: true },
  };

  class Chart {
    constructor(figure) {
      this.figure = figure;
      this.place = figure.querySelector(".drawing");
      this.turn = Promise.resolve();
      figure.addEventListener("change", (event) => {
        if (event.target.dataset.series !== undefined) this.hide();
      });
      for (const button of figure.querySelectorAll("[data-zoom]")) {
        button.addEventListener("click", () => this.zoom(button.dataset.zoom));
      }
    }

    // One drawing after the other: a later one must not be overtaken by an earlier one.
    draw(spec, domains) {
      this.turn = this.turn.then(() => this.drawNow(spec, domains));
      return this.turn;
    }

    async drawNow(spec, domains) {
      this.spec = spec;
      const shown = structuredClone(spec);
      if (domains) {
        Object.assign(shown.encoding.x.scale, { domain: domains.x, nice: false });
        for (const layer of shown.layer) {
          layer.encoding.y.scale = { zero: false, nice: false, domain: domains.y };
        }
      }
      if (this.result) this.result.finalize();
      this.result = await vegaEmbed(this.place, shown, OPTIONS);
      this.view = this.result.view;
      this.figure.classList.add("drawn");
      await this.hide();
    }

    rows(values) {
      this.turn = this.turn.then(() => {
        this.spec.data.values = values;
        const view = this.view;
        return view.change("rows", vega.changeset().remove(() => true).insert(structuredClone(values))).runAsync();
      });
      return this.turn;
    }

    hide() {
      const boxes = [...this.figure.querySelectorAll("[data-series]")];
      const hidden = boxes.filter((box) => !box.checked).map((box) => box.dataset.series);
      return this.view ? this.view.signal("hidden", hidden).runAsync() : null;
    }

    zoom(kind) {
      if (!this.view) return;
      if (kind === "all") {
        this.draw(this.spec);
        return;
      }
      const factor = kind === "in" ? 0.6 : 1 / 0.6;
      const around = (scale) => {
        const [low, high] = scale.domain();
        const type = vega.scaleLog && scale.type === "log";
        const [a, b] = type ? [Math.log(low), Math.log(high)] : [low, high];
        const middle = (a + b) / 2;
        const ends = [middle + (a - middle) * factor, middle + (b - middle) * factor];
        return type ? ends.map(Math.exp) : ends;
      };
      this.draw(this.spec, { x: around(this.view.scale("x")), y: around(this.view.scale("y")) });
    }
  }

  return (figure) => new Chart(figure);
})();
