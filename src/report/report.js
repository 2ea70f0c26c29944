// Draws the charts of filigree's report with Chart.js from the JSON in #data. What has been drawn is written to data-
// attributes of each canvas and of the root element. The part of the address behind # sets the switches, so that a view
// can be shared: #axis=seconds&smooth=off&log=on.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const wish = new URLSearchParams(location.hash.slice(1));
  const state = {
    axis: ["step", "tokens", "seconds"].includes(wish.get("axis")) ? wish.get("axis") : "step",
    smooth: wish.get("smooth") !== "off",
    log: wish.get("log") === "on",
    hidden: new Set(),
  };
  const LOG_CHARTS = ["loss", "val-loss"];
  const drawn = [];  // {chart, spec}

  const colour = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const faded = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");

  function short(value) {
    const size = Math.abs(value);
    if (size === 0) return "0";
    if (size < 1e-4) return value.toExponential(1).replace("e-", "e−");
    for (const [unit, suffix] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]])
      if (size >= unit) return Number((value / unit).toPrecision(3)) + suffix;
    return String(Number(value.toPrecision(4)));
  }
  function bytes(value) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let unit = 0;
    while (value >= 1023.5 && unit + 1 < units.length) { value /= 1024; ++unit; }
    return Number(value.toPrecision(3)) + " " + units[unit];
  }
  // The unit in which the longest time of a chart is a readable number.
  function timeUnit(seconds) {
    for (const [size, name] of [[86400, "days"], [3600, "hours"], [60, "minutes"]])
      if (seconds >= 2 * size) return { size, name };
    return { size: 1, name: "seconds" };
  }

  function axisOf(spec) {
    if (state.axis === "step") return { title: "step", scale: 1 };
    if (state.axis === "tokens") return { title: "tokens", scale: 1 };
    const longest = Math.max(0, ...spec.series.map((series) => series.raw.seconds.at(-1)));
    const unit = timeUnit(longest);
    return { title: "training time, " + unit.name, scale: unit.size };
  }
  const pointsOf = (lists, scale) => lists.value.map((y, i) => ({ x: lists[state.axis][i] / scale, y }));

  // A run is one line; where it has an average and that is wanted, the line is the average and the values lie behind it.
  function curveDatasets(spec) {
    const { scale } = axisOf(spec);
    const behind = [], lines = [];
    for (const series of spec.series) {
      const run = data.runs[series.run];
      const tone = colour(run.colour);
      const smooth = state.smooth && series.smooth;
      const few = series.raw.value.length <= 40;
      const common = { label: run.name, run: series.run, hidden: state.hidden.has(series.run), spanGaps: false };
      if (smooth) {
        behind.push({ ...common, raw: true, data: pointsOf(series.raw, scale), borderColor: faded(tone, 0.22),
                      borderWidth: 1, pointRadius: 0, pointHitRadius: 0, order: 2 });
      }
      lines.push({ ...common, data: pointsOf(smooth ? series.smooth : series.raw, scale), borderColor: tone,
                   backgroundColor: tone, borderWidth: smooth || !series.smooth ? 2 : 1.2,
                   borderDash: run.dashed && (smooth || !series.smooth) ? [7, 4] : [],
                   pointRadius: few ? 2.5 : 0, pointHoverRadius: 4, order: 1 });
    }
    return [...behind, ...lines];
  }

  // The axis ends where the longest run does, not at the next round number.
  const furthest = (spec) => Math.max(...spec.series.map((series) => series.raw[state.axis].at(-1) / axisOf(spec).scale));

  // A logarithmic axis would otherwise go down to the next power of ten.
  const lowest = (spec) => Math.min(...spec.series.flatMap((series) => series.raw.value.filter((y) => y > 0)));

  function curveOptions(spec) {
    const axis = axisOf(spec);
    const logarithmic = state.log && LOG_CHARTS.includes(spec.id);
    return {
      animation: false, maintainAspectRatio: false, responsive: true, normalized: true, parsing: false,
      interaction: { mode: "nearest", axis: "x", intersect: false },
      scales: {
        x: { type: "linear", title: { display: true, text: axis.title, color: colour("muted") }, ...lines(short),
             min: 0, max: furthest(spec) },
        y: { type: logarithmic ? "logarithmic" : "linear", ...lines(short),
             ...(logarithmic ? { min: 0.97 * lowest(spec) } : {}),
             // A rate is honest only from 0 on; a loss is read by its differences.
             beginAtZero: spec.id === "tokens-per-s" || spec.id === "lr" },
      },
      plugins: {
        legend: { display: false },
        tooltip: {
          ...tooltip(), filter: (item) => !item.dataset.raw,
          callbacks: {
            title: (items) => (items.length ? axis.title + " " + Number(items[0].parsed.x.toPrecision(6)) : ""),
            label: (item) => item.dataset.label + ": " + Number(item.parsed.y.toPrecision(5)),
          },
        },
      },
    };
  }
  function lines(format) {
    return {
      grid: { color: colour("grid"), borderColor: colour("rule"), tickColor: colour("rule") },
      ticks: { color: colour("muted"), maxRotation: 0, autoSkipPadding: 14, callback: (value) => format(value) },
    };
  }
  function tooltip() {
    return { backgroundColor: colour("ink"), titleColor: colour("surface"), bodyColor: colour("surface"), padding: 8,
             boxPadding: 4, usePointStyle: true };
  }

  // A dense model that nobody ran (its label has two lines) is pale beside what the runs hold.
  function memoryConfig(spec) {
    return {
      type: "bar",
      data: {
        labels: spec.labels,
        datasets: spec.series.map((part, i) => ({
          label: part.name, data: part.value,
          backgroundColor: spec.labels.map((label) => faded(colour("part-" + (i % 9)), label.length > 1 ? 0.5 : 1)),
          borderColor: colour("surface"), borderWidth: 1, borderSkipped: false, maxBarThickness: 34,
        })),
      },
      options: {
        indexAxis: "y", animation: false, maintainAspectRatio: false,
        scales: {
          x: { stacked: true, beginAtZero: true, ...lines(bytes), ticks: { ...lines(bytes).ticks, stepSize: spec.step } },
          y: { stacked: true, grid: { display: false }, ticks: { color: colour("ink"), crossAlign: "far" } },
        },
        plugins: {
          legend: { position: "bottom", onClick: () => {},
                    labels: { color: colour("ink"), boxWidth: 12, boxHeight: 12, generateLabels: (chart) =>
                      chart.data.datasets.map((set, i) => ({ text: set.label, fillStyle: colour("part-" + (i % 9)),
                                                            fontColor: colour("ink"), lineWidth: 0 })) } },
          tooltip: { ...tooltip(), callbacks: { label: (item) => item.dataset.label + ": " + bytes(item.raw) } },
        },
      },
    };
  }

  function densityConfig(spec) {
    return {
      type: "bar",
      data: {
        labels: spec.labels,
        datasets: spec.series.map((series) => {
          const run = data.runs[series.run];
          return { label: run.name, run: series.run, data: series.value, backgroundColor: colour(run.colour),
                   hidden: state.hidden.has(series.run), maxBarThickness: 22, categoryPercentage: 0.86, barPercentage: 1 };
        }),
      },
      options: {
        animation: false, maintainAspectRatio: false,
        interaction: { mode: "index", intersect: false },
        scales: {
          // Rotated names would take half of a phone's chart; the tables below have them.
          x: { grid: { display: false }, ticks: { display: innerWidth > 640, color: colour("muted"), maxRotation: 45,
                                                  autoSkipPadding: 8 } },
          y: { min: 0, max: 1, ...lines(short), ticks: { ...lines(short).ticks, stepSize: 0.25 } },
        },
        plugins: {
          legend: { display: spec.series.length > 1, position: "bottom",
                    labels: { color: colour("ink"), boxWidth: 12, boxHeight: 12 }, onClick: () => {} },
          tooltip: tooltip(),
        },
      },
    };
  }

  function configOf(spec) {
    if (spec.kind === "memory") return memoryConfig(spec);
    if (spec.kind === "density") return densityConfig(spec);
    return { type: "line", data: { datasets: curveDatasets(spec) }, options: curveOptions(spec) };
  }

  // Ticks of bytes fall on powers of two, about six of them.
  function byteStep(spec) {
    const sums = spec.labels.map((_, bar) => spec.series.reduce((sum, part) => sum + part.value[bar], 0));
    return 2 ** Math.ceil(Math.log2(Math.max(1, ...sums) / 6));
  }

  function record(chart, canvas) {
    canvas.dataset.datasets = chart.data.datasets.length;
    canvas.dataset.runs = new Set(chart.data.datasets.map((set) => set.run ?? set.label)).size;
    canvas.dataset.points = chart.data.datasets.map((set) => set.data.length).join(" ");
    canvas.dataset.axis = chart.options.scales.x.title?.text || "";
    canvas.dataset.end = chart.scales.x?.max ?? "";
    canvas.dataset.scale = chart.options.scales.y.type || "";
  }

  function draw() {
    for (const { chart } of drawn.splice(0)) chart.destroy();
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    Chart.defaults.font.size = 12;
    for (const spec of data.charts) {
      const canvas = document.getElementById("chart-" + spec.id);
      if (spec.kind === "memory") {
        spec.step = byteStep(spec);
        canvas.parentElement.style.height = 100 + 46 * spec.labels.length + "px";
      }
      if (spec.kind === "density" && innerWidth > 640) canvas.parentElement.style.height = "340px";
      const chart = new Chart(canvas, configOf(spec));
      record(chart, canvas);
      drawn.push({ chart, spec });
    }
    root.dataset.charts = drawn.length;
  }

  function pressed(button, on) { button.setAttribute("aria-pressed", String(on)); }

  function connect() {
    const axes = document.querySelectorAll("[data-axis]:not(canvas)");
    for (const button of axes) {
      pressed(button, button.dataset.axis === state.axis);
      button.addEventListener("click", () => {
        state.axis = button.dataset.axis;
        for (const other of axes) pressed(other, other === button);
        draw();
      });
    }
    for (const button of document.querySelectorAll("[data-run]")) {
      const run = Number(button.dataset.run);
      button.addEventListener("click", () => {
        if (!state.hidden.delete(run)) state.hidden.add(run);
        pressed(button, !state.hidden.has(run));
        draw();
      });
    }
    for (const name of ["smooth", "log"]) {
      const box = document.getElementById(name);
      if (!box) continue;
      box.checked = state[name];
      box.addEventListener("change", () => { state[name] = box.checked; draw(); });
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    // Paper is white and has its own width.
    matchMedia("print").addEventListener("change", draw);
    addEventListener("beforeprint", () => { for (const { chart } of drawn) chart.resize(); });
    addEventListener("afterprint", () => { for (const { chart } of drawn) chart.resize(); });
  }

  // Pictures of masks: buttons, a double click or the wheel with Ctrl look closer, dragging moves what is seen.
  function zoomable(svg) {
    const whole = svg.viewBox.baseVal, full = { width: whole.width, height: whole.height };
    const view = { x: 0, y: 0, scale: 1 };
    // At most 8 cells wide; the picture is then as wide as its frame, so that a cell can be seen.
    const closest = Math.max(1, Math.max(full.width, full.height) / 8);
    const width = svg.style.width;
    function show() {
      const w = full.width / view.scale, h = full.height / view.scale;
      view.x = Math.min(Math.max(view.x, 0), full.width - w);
      view.y = Math.min(Math.max(view.y, 0), full.height - h);
      svg.setAttribute("viewBox", [view.x, view.y, w, h].join(" "));
      svg.style.width = view.scale > 1 ? "max(" + width + ", 320px)" : width;
      svg.classList.toggle("zoomed", view.scale > 1);
      svg.dataset.zoom = view.scale;
    }
    // Around a place, in shares of the picture.
    function zoom(factor, x = 0.5, y = 0.5) {
      const scale = Math.min(Math.max(view.scale * factor, 1), closest);
      view.x += x * full.width * (1 / view.scale - 1 / scale);
      view.y += y * full.height * (1 / view.scale - 1 / scale);
      view.scale = scale;
      show();
    }
    const place = (event) => {
      const box = svg.getBoundingClientRect();
      return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    };
    svg.addEventListener("dblclick", (event) => zoom(2, ...place(event)));
    svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      zoom(event.deltaY < 0 ? 1.25 : 0.8, ...place(event));
    }, { passive: false });
    svg.addEventListener("pointerdown", (event) => { if (view.scale > 1) svg.setPointerCapture(event.pointerId); });
    svg.addEventListener("pointermove", (event) => {
      if (!svg.hasPointerCapture(event.pointerId)) return;
      const box = svg.getBoundingClientRect();
      view.x -= event.movementX / box.width * full.width / view.scale;
      view.y -= event.movementY / box.height * full.height / view.scale;
      show();
    });
    const bar = document.createElement("div");
    bar.className = "zoom";
    for (const [text, label, action] of [["+", "Closer", () => zoom(2)], ["−", "Further away", () => zoom(0.5)],
                                         ["whole", "The whole picture", () => zoom(0)]]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.setAttribute("aria-label", label);
      button.addEventListener("click", action);
      bar.append(button);
    }
    svg.after(bar);
  }

  connect();
  draw();
  for (const svg of document.querySelectorAll(".mask svg")) zoomable(svg);
  root.dataset.ready = "true";
})();
