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
      const around = (name, log) => {
        const [a, b] = this.view.scale(name).domain().map((v) => (log ? Math.log(v) : v));
        const middle = (a + b) / 2;
        const ends = [middle + (a - middle) * factor, middle + (b - middle) * factor];
        return log ? ends.map(Math.exp) : ends;
      };
      const log = this.spec.encoding.x.scale.type === "log";
      this.draw(this.spec, { x: around("x", log), y: around("y", false) });
    }
  }

  return (figure) => new Chart(figure);
})();
