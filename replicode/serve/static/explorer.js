// The explorer: what the form asks for becomes a job, whose events fill the page as they come.
"use strict";
(function () {
  const NUMBERS = [
    // name, label, value, low, high, on a logarithmic scale, usual range
    ["alpha", "α, data", 4, 0.3, 100, true, [1, 10]],
    ["nu", "ν, signal", 2, 0.1, 20, true, [0.5, 8]],
    ["noise", "Δ, noise", 0.3, 0, 2, false, [0.1, 1]],
    ["lambda_k", "λₖ, ridge", 1, 0.01, 100, true, [0.1, 10]],
    ["lambda_v", "λᵥ, ridge", 1, 0.01, 100, true, [0.1, 10]],
  ];
  const MOST = 6;
  const WAIT = 450;
  const of = (id) => document.getElementById(id);
  const chart = window.replicodeChart(of("chart"));
  const inputs = {};
  let running = null;
  let timer = null;

  function element(tag, options = {}, ...children) {
    const made = Object.assign(document.createElement(tag), options);
    made.append(...children);
    return made;
  }

  function addActivation(text) {
    const count = of("rows").children.length;
    if (count >= MOST) return;
    const input = element("input", { value: text, maxLength: 300, spellcheck: false });
    input.setAttribute("list", "names");
    input.setAttribute("aria-label", `activation ${count + 1}`);
    const row = element("div", { className: "row" }, input);
    if (count) {
      const remove = element("button", { type: "button", textContent: "Remove" });
      remove.setAttribute("aria-label", `remove activation ${count + 1}`);
      remove.addEventListener("click", () => {
        row.remove();
        of("add").disabled = false;
        soon();
      });
      row.append(remove);
    }
    of("rows").append(row);
    of("add").disabled = count + 1 >= MOST;
    return input;
  }

  function addNumber([name, label, value, low, high, log]) {
    const place = (v) => (log ? Math.log(v) : v);
    const box = element("input", { type: "number", step: "any", value, id: name });
    const slide = element("input", { type: "range", min: place(low), max: place(high), step: (place(high) - place(low)) / 200 });
    slide.value = place(value);
    slide.setAttribute("aria-label", `${name}, slider`);
    slide.addEventListener("input", () => {
      box.value = Number((log ? Math.exp(slide.value) : Number(slide.value)).toPrecision(3));
      slide.setAttribute("aria-valuetext", box.value);
    });
    box.addEventListener("input", () => {
      const v = Number(box.value);
      if (box.value !== "" && (!log || v > 0)) slide.value = place(v);
    });
    const row = element("div", { className: "slider" }, element("label", { htmlFor: name, textContent: label }), slide, box);
    of("sliders").append(row);
    of("along").append(element("option", { value: name, textContent: label }));
    inputs[name] = { box, row };
  }

  function chooseAxis() {
    const along = of("along").value;
    const range = NUMBERS.find((n) => n[0] === along)[6];
    [of("low").value, of("high").value] = range;
    of("range-name").textContent = `${along} from, to`;
    for (const [name, { row }] of Object.entries(inputs)) row.hidden = name === along;
  }

  function parameters() {
    const found = {};
    for (const part of of("parameters").value.split(",")) {
      const [name, value] = part.split("=").map((s) => s.trim());
      if (name) found[name] = value || "";
    }
    return found;
  }

  function asked() {
    const along = of("along").value;
    const numbers = Object.fromEntries(
      Object.entries(inputs).map(([name, { box }]) => [name, name === along ? `${of("low").value}:${of("high").value}` : box.value]),
    );
    return {
      activations: [...of("rows").querySelectorAll("input")].map((i) => i.value).filter((v) => v.trim()),
      task: of("task").value,
      tokens: of("tokens").value,
      parameters: parameters(),
      optimal: of("optimal").checked,
      bayes: of("bayes").checked,
      suite: of("suite").checked,
      ...numbers,
    };
  }

  function status(text) {
    of("status").textContent = text;
  }

  function fail(message) {
    const shown = element("pre", { textContent: message });
    if (message.includes("^")) shown.className = "caret";
    shown.tabIndex = 0;
    of("problem").replaceChildren(shown);
    status("Not computed: see the message.");
  }

  function legend(names, bayes) {
    const known = bayes ? [...names, "Bayes-optimal"] : names;
    of("switches").replaceChildren(
      ...known.map((name, i) => {
        const box = element("input", { type: "checkbox", checked: true });
        box.dataset.series = name;
        const colour = name === "Bayes-optimal" && i === names.length ? "bayes" : `s${i % 6}`;
        return element("label", {}, box, element("span", { className: `swatch ${colour}` }), name);
      }),
    );
  }

  const put = (id) => (content) => {
    of(id).innerHTML = content.html; // made by the server, where every text is escaped
  };

  const HEARD = {
    names: ({ names, chosen, bayes }) => {
      legend(names, bayes);
      const told = Object.entries(chosen).flatMap(([act, own]) =>
        Object.entries(own).map(([name, value]) => `${name} = ${value.toPrecision(4)} for ${act}`),
      );
      const best = told.length ? ` Best with infinite data: ${told.join(", ")}.` : "";
      of("caption").textContent = `Dashed where replica symmetry is broken; the band is the error.${best}`;
    },
    properties: put("properties"),
    equations: put("equations"),
    numbers: put("numbers"),
    suite: put("suite-found"),
    chart: ({ spec }) => {
      chart.place.setAttribute("aria-label", spec.description);
      chart.draw(spec);
    },
    progress: ({ text }) => status(text),
    warnings: ({ warnings }) => {
      const items = warnings.map((w) => element("li", { textContent: w }));
      const box = element("aside", { className: "warnings" }, element("ul", {}, ...items));
      box.setAttribute("aria-label", "Warnings");
      of("warned").replaceChildren(...(items.length ? [box] : []));
    },
  };

  async function start(kind) {
    const answer = await fetch("api/jobs", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ kind, ...asked() }),
    });
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.message);
    return found.job;
  }

  function listen(key, heard) {
    return new Promise((resolve, reject) => {
      const source = new EventSource(`api/jobs/${key}/events`);
      const end = (settle, value) => {
        source.close();
        settle(value);
      };
      for (const [name, act] of Object.entries(heard)) source.addEventListener(name, (e) => act(JSON.parse(e.data)));
      source.addEventListener("done", () => end(resolve, "done"));
      source.addEventListener("cancelled", () => end(resolve, "cancelled"));
      source.addEventListener("failed", (e) => end(reject, new Error(JSON.parse(e.data).message)));
      source.onerror = () => {
        if (source.readyState === EventSource.CLOSED) end(reject, new Error("the explorer does not answer any more"));
      };
    });
  }

  async function stop() {
    clearTimeout(timer);
    const mine = running;
    running = null;
    if (mine && mine.key) await fetch(`api/jobs/${mine.key}`, { method: "DELETE" });
  }

  async function compute() {
    await stop();
    const mine = { key: null };
    running = mine;
    of("problem").replaceChildren();
    of("suite-found").replaceChildren();
    of("stop").disabled = false;
    status("Reading …");
    toAddress(asked());
    const heard = Object.fromEntries(
      Object.entries(HEARD).map(([name, act]) => [name, (content) => running === mine && act(content)]),
    );
    try {
      mine.key = await start("explore");
      if (running !== mine) {
        await fetch(`api/jobs/${mine.key}`, { method: "DELETE" });
        return;
      }
      const ended = await listen(mine.key, heard);
      if (running === mine) status(ended === "done" ? "Done." : "Stopped; what was computed is kept.");
    } catch (problem) {
      if (running === mine) fail(problem.message);
    } finally {
      if (running === mine) {
        running = null;
        of("stop").disabled = true;
      }
    }
  }

  function soon() {
    clearTimeout(timer);
    timer = setTimeout(compute, WAIT);
  }

  async function download(kind, button) {
    button.disabled = true;
    try {
      const key = await start(kind);
      await listen(key, { progress: HEARD.progress });
      const answer = await fetch(`api/jobs/${key}/file`);
      const name = /filename="([^"]+)"/.exec(answer.headers.get("content-disposition"))[1];
      const link = element("a", { href: URL.createObjectURL(await answer.blob()), download: name });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
      status(`${name} is ready.`);
    } catch (problem) {
      fail(problem.message);
    } finally {
      button.disabled = false;
    }
  }

  // The address keeps what is asked, so that it can be loaded again or sent to oneself.
  function fromAddress() {
    const given = new URLSearchParams(location.search);
    const texts = given.getAll("activation").slice(0, MOST);
    (texts.length ? texts : ["softmax"]).forEach(addActivation);
    for (const id of ["task", "tokens", "parameters"]) if (given.has(id)) of(id).value = given.get(id);
    for (const id of ["optimal", "bayes", "suite"]) if (given.has(id)) of(id).checked = given.get(id) === "true";
    for (const [name, { box }] of Object.entries(inputs)) {
      const ends = (given.get(name) || "").split(":");
      if (ends.length === 2) {
        of("along").value = name;
        chooseAxis();
        [of("low").value, of("high").value] = ends;
      } else if (ends[0]) {
        box.value = ends[0];
        box.dispatchEvent(new Event("input"));
      }
    }
  }

  function toAddress(question) {
    const { activations, ...rest } = question;
    const given = new URLSearchParams(activations.map((text) => ["activation", text]));
    for (const [name, value] of Object.entries(rest)) if (name !== "parameters") given.set(name, value);
    given.set("parameters", of("parameters").value);
    history.replaceState(null, "", `?${given}`);
  }

  async function begin() {
    NUMBERS.forEach(addNumber);
    chooseAxis();
    fromAddress();
    const names = await (await fetch("api/registered")).json();
    of("names").append(...Object.entries(names.activations).map(([n, e]) => element("option", { value: n, label: e })));
    of("tasks").append(...names.tasks.map((n) => element("option", { value: n })));
    of("along").addEventListener("change", chooseAxis);
    of("add").addEventListener("click", () => addActivation("").focus());
    of("asked").addEventListener("change", soon);
    of("asked").addEventListener("submit", (event) => {
      event.preventDefault();
      clearTimeout(timer);
      compute();
    });
    of("stop").addEventListener("click", async () => {
      await stop();
      of("stop").disabled = true;
      status("Stopped; what was computed is kept.");
    });
    for (const button of of("downloads").querySelectorAll("button")) {
      button.addEventListener("click", () => download(button.dataset.kind, button));
    }
    compute();
  }

  begin();
})();
