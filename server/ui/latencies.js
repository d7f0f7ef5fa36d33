// Latencies over the last two minutes: percentiles over time and a heat map, drawn on canvases.
import { colour, count, duration, el, setText } from "./shapes.js";

const kSeconds = 120;
const kWindow = 10; // seconds that a percentile looks back
const kLines = [["p50", 0.5, "decode"], ["p90", 0.9, "prefill"], ["p99", 0.99, "bad"]];
const kRowsPerOctave = 4;

// A size that the server tells is [floor, n]: n latencies of `floor` microseconds or more, and less
// than the next eighth of the octave.
const widthOf = (floor) => (floor < 8 ? 1 : 2 ** (Math.floor(Math.log2(floor)) - 3));

// The latency in ms below which the given part of all is, even within a size; null: there is none.
export function percentile(sizes, part) {
  let left = part * sizes.reduce((sum, [, n]) => sum + n, 0);
  if (left === 0) return null;
  for (const [floor, n] of sizes) {
    if (left <= n) return (floor + (left / n) * widthOf(floor)) / 1000;
    left -= n;
  }
  return null;
}

export class Latencies {
  seconds = new Map(); // second -> sizes
  last = 0;

  add(told, now) {
    if (now <= this.last) this.seconds.clear(); // of a server that ran before on another clock
    for (const [second, sizes] of told) this.seconds.set(second, sizes);
    this.last = now - 1;
    for (const second of this.seconds.keys())
      if (second <= this.last - kSeconds) this.seconds.delete(second);
  }
  // Sizes of all latencies of the seconds (end - n, end], ascending.
  sizes(end, n) {
    const sum = new Map();
    for (let second = end - n + 1; second <= end; ++second)
      for (const [floor, times] of this.seconds.get(second) ?? [])
        sum.set(floor, (sum.get(floor) ?? 0) + times);
    return [...sum].sort((a, b) => a[0] - b[0]);
  }
  countOf(end, n) {
    return this.sizes(end, n).reduce((sum, [, times]) => sum + times, 0);
  }
}

// Octaves of microseconds that all latencies lie in, two at least.
function octavesOf(latencies) {
  let least = Infinity, most = 0;
  for (const sizes of latencies.seconds.values())
    for (const [floor] of sizes) {
      least = Math.min(least, Math.max(1, floor));
      most = Math.max(most, floor);
    }
  if (most === 0) return [9, 15]; // half a millisecond to 32
  const begin = Math.floor(Math.log2(least));
  return [begin, Math.max(begin + 2, Math.floor(Math.log2(most)) + 1)];
}

// Round latencies in us between two octaves, at most `most` of them.
function ticks(begin, end, most) {
  const all = [];
  for (let decade = 1; decade < 1e10; decade *= 10)
    for (const step of [1, 2, 5])
      if (decade * step >= 2 ** begin && decade * step <= 2 ** end) all.push(decade * step);
  const decades = all.filter((us) => String(us).startsWith("1"));
  if (all.length <= most) return all;
  return decades.length >= 2 ? decades : all.filter((_, i) => i % 2 === 0);
}

const plain = (us) => (us < 1000 ? `${us} µs` : us < 1e6 ? `${us / 1000} ms` : `${us / 1e6} s`);

function prepared(canvas) {
  const scale = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "11px system-ui, sans-serif";
  return { pen, width, height };
}

const kLeft = 50, kRight = 4, kBottom = 18, kTop = 6;

// One plot: lines above, heat map below, one time axis.
export class LatencyPlot {
  constructor(place, latencies, name) {
    this.latencies = latencies;
    this.name = name;
    this.chosen = null; // seconds before the last one; null: none
    this.lines = el("canvas", { role: "img", tabindex: 0, "aria-label": name });
    this.heat = el("canvas", { class: "heat", role: "img", "aria-label": `${name}, heat map` });
    this.values = kLines.map(([label]) => el("b", {}, "–"));
    this.when = el("span", {}, "");
    const keys = kLines.map(([label], i) =>
      el("span", {}, el("i", { class: `swatch ${label}` }), `${label} `, this.values[i]));
    place.append(el("div", { class: "keyline" }, ...keys, this.when), this.lines, this.heat,
      el("p", { class: "caption" }, "Lines: of the 10 s before. Below: a column is a second, and darker is more."));
    for (const canvas of [this.lines, this.heat]) {
      canvas.addEventListener("pointermove", (event) => this.pointAt(canvas, event.offsetX));
      canvas.addEventListener("pointerleave", () => this.choose(null));
    }
    this.lines.addEventListener("keydown", (event) => this.onKey(event));
    this.lines.addEventListener("blur", () => this.choose(null));
    new ResizeObserver(() => this.draw()).observe(place);
  }

  pointAt(canvas, x) {
    const width = canvas.clientWidth - kLeft - kRight;
    const back = Math.round((1 - (x - kLeft) / width) * (kSeconds - 1));
    this.choose(back < 0 || back >= kSeconds ? null : back);
  }
  onKey(event) {
    const step = { ArrowLeft: 1, ArrowRight: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    this.choose(Math.min(kSeconds - 1, Math.max(0, (this.chosen ?? -step) + step)));
  }
  choose(back) {
    if (back === this.chosen) return;
    this.chosen = back;
    this.draw();
  }

  draw() {
    if (this.lines.clientWidth === 0) return; // not shown
    const octaves = octavesOf(this.latencies);
    this.drawLines(octaves);
    this.drawHeat(octaves);
    const end = this.latencies.last - (this.chosen ?? 0);
    const sizes = this.latencies.sizes(end, kWindow);
    kLines.forEach(([, part], i) => setText(this.values[i], duration(percentile(sizes, part))));
    const n = count(sizes.reduce((sum, [, times]) => sum + times, 0));
    setText(this.when, this.chosen === null ? "" : `${this.chosen} s ago, ${n} in ${kWindow} s`);
    const told = kLines.map(([label, part]) => `${label} ${duration(percentile(sizes, part))}`);
    this.lines.setAttribute("aria-label", `${this.name}: ${told.join(", ")}`);
  }

  // Axes of both canvases; returns the places of times and latencies.
  axes({ pen, width, height }, [begin, end], hasTimes) {
    const bottom = height - (hasTimes ? kBottom : 4);
    const x = (back) => kLeft + (1 - back / (kSeconds - 1)) * (width - kLeft - kRight);
    const y = (us) => bottom - ((Math.log2(us) - begin) / (end - begin)) * (bottom - kTop);
    pen.fillStyle = colour("soft");
    pen.strokeStyle = colour("line");
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const us of ticks(begin, end, (bottom - kTop) / 26)) {
      const at = Math.round(y(us)) + 0.5;
      pen.fillText(plain(us), kLeft - 7, Math.max(kTop, Math.min(at, bottom - 4)));
      pen.beginPath();
      pen.moveTo(kLeft, at);
      pen.lineTo(width - kRight, at);
      pen.stroke();
    }
    pen.textBaseline = "alphabetic";
    for (let back = 0; hasTimes && back < kSeconds; back += 30) {
      pen.textAlign = back === 0 ? "right" : "center";
      pen.fillText(back === 0 ? "now" : `−${back} s`, x(back), height - 4);
    }
    return { x, y, bottom };
  }

  drawLines(octaves) {
    const sheet = prepared(this.lines);
    const { pen } = sheet;
    const { x, y, bottom } = this.axes(sheet, octaves, false);
    const points = []; // of the oldest second first: a value or null per line
    for (let back = kSeconds - 1; back >= 0; --back) {
      const sizes = this.latencies.sizes(this.latencies.last - back, kWindow);
      points.push(kLines.map(([, part]) => percentile(sizes, part)));
    }
    kLines.forEach(([, , name], line) => {
      pen.strokeStyle = colour(name);
      pen.lineWidth = 1.75;
      pen.lineJoin = "round";
      pen.beginPath();
      let drawn = false;
      points.forEach((values, at) => {
        const value = values[line];
        if (value !== null)
          pen[drawn ? "lineTo" : "moveTo"](x(kSeconds - 1 - at), y(Math.max(1, value * 1000)));
        drawn = value !== null;
      });
      pen.stroke();
    });
    this.mark(pen, x, bottom);
  }

  drawHeat(octaves) {
    const sheet = prepared(this.heat);
    const { pen, width } = sheet;
    const { x, y, bottom } = this.axes(sheet, octaves, true);
    const cells = new Map(); // "back row" -> n
    let most = 1;
    for (let back = 0; back < kSeconds; ++back)
      for (const [floor, n] of this.latencies.seconds.get(this.latencies.last - back) ?? []) {
        const row = Math.floor(Math.log2(Math.max(1, floor)) * kRowsPerOctave + 1e-9);
        const cell = `${back} ${row}`;
        cells.set(cell, (cells.get(cell) ?? 0) + n);
        most = Math.max(most, cells.get(cell));
      }
    pen.fillStyle = colour("accent");
    const wide = (width - kLeft - kRight) / (kSeconds - 1);
    for (const [cell, n] of cells) {
      const [back, row] = cell.split(" ").map(Number);
      const top = y(2 ** ((row + 1) / kRowsPerOctave)), low = y(2 ** (row / kRowsPerOctave));
      pen.globalAlpha = 0.16 + 0.84 * Math.sqrt(n / most);
      const left = Math.max(kLeft, x(back) - wide);
      pen.fillRect(left, top + 0.5, x(back) - left - 0.5, Math.max(1, low - top - 0.5));
    }
    pen.globalAlpha = 1;
    this.mark(pen, x, bottom);
  }

  mark(pen, x, bottom) {
    if (this.chosen === null) return;
    pen.strokeStyle = colour("ink");
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(Math.round(x(this.chosen)) + 0.5, kTop);
    pen.lineTo(Math.round(x(this.chosen)) + 0.5, bottom);
    pen.stroke();
  }
}
