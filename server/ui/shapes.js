// Elements and numbers, as all views make them. Text enters the page as text alone: nothing here or
// elsewhere parses HTML.

const kSvg = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const el = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS(kSvg, tag), attributes, children);
export const byId = (id) => document.getElementById(id);

// Changes the text only if it is another one: selections and screen readers are left alone.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const kWhole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
export const count = (value) => kWhole.format(value);

// Three digits, more only for whole numbers.
const digits = (value) =>
  value >= 100 ? kWhole.format(value) : value >= 10 ? value.toFixed(1) : value.toFixed(2);

export function duration(ms) {
  if (ms === undefined || ms === null || Number.isNaN(ms)) return "–";
  if (ms < 1) return `${Math.round(ms * 1000)} µs`;
  if (ms < 1000) return `${digits(ms)} ms`;
  if (ms < 60000) return `${digits(ms / 1000)} s`;
  return `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`;
}

export function bytesPerSecond(value) {
  for (const unit of ["B/s", "kB/s", "MB/s", "GB/s"]) {
    if (value < 1000 || unit === "GB/s") return `${digits(value)} ${unit}`;
    value /= 1000;
  }
  return "";
}

// A colour of page.css for canvases, as it is in the theme that is shown.
const probe = el("span", { class: "probe", "aria-hidden": "true" });
export function colour(name) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}
