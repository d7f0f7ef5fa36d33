// The frame of the page: views, theme, key, and the one question that feeds them.
import { ApiError, hasKey, LivePoll, setKey } from "./api.js";
import { Chat } from "./chat.js";
import { LiveView } from "./live.js";
import { byId, setText } from "./shapes.js";
import { Waterfall } from "./waterfall.js";

const kViews = ["chat", "live", "requests"];
const kThemes = { system: "Auto", light: "Light", dark: "Dark" };
const kSeen = 1000, kUnseen = 5000; // ms between questions while figures are shown, and else

// --- theme ---
const theme = byId("theme");
function setTheme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  localStorage.setItem("baton-theme", name);
  theme.dataset.is = name;
  setText(theme, kThemes[name]);
  theme.setAttribute("aria-label", `Theme: ${kThemes[name]}`);
}
const kept = localStorage.getItem("baton-theme") ?? "";
setTheme(kept in kThemes ? kept : "system");
theme.addEventListener("click", () => {
  const names = Object.keys(kThemes);
  setTheme(names[(names.indexOf(theme.dataset.is) + 1) % names.length]);
  redraw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());

// --- key ---
const dialog = byId("key-dialog"), keyText = byId("key-text");
let onKey = () => {};
function askForKey() {
  if (dialog.open) return;
  keyText.value = "";
  dialog.showModal();
  keyText.focus();
}
byId("key").addEventListener("click", askForKey);
byId("key-cancel").addEventListener("click", () => dialog.close());
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(keyText.value);
  keyText.value = "";
  dialog.close();
  onKey();
});
function onError(error) {
  if (error instanceof ApiError && error.status === 401 && !hasKey()) askForKey();
}

// --- views ---
const chat = new Chat(onError, (id) => {
  requests.chosen = id;
  show("requests");
});
const live = new LiveView();
const requests = new Waterfall(byId("list"), byId("detail"), {
  onlyFailovers: byId("only-failovers"), hold: byId("hold"), legend: byId("legend"),
});

function redraw() {
  live.draw();
  requests.draw();
}

function show(name, focus = false) {
  for (const view of kViews) {
    const tab = byId(`tab-${view}`), isShown = view === name;
    tab.setAttribute("aria-selected", String(isShown));
    tab.tabIndex = isShown ? 0 : -1;
    byId(view).hidden = !isShown;
    if (isShown && focus) tab.focus();
  }
  // With a slash it is no element's id: the browser would take the focus there.
  if (location.hash !== `#/${name}`) history.replaceState(null, "", `#/${name}`);
  poll.setPeriod(name === "chat" ? kUnseen : kSeen);
  redraw();
}
for (const view of kViews) byId(`tab-${view}`).addEventListener("click", () => show(view));
document.querySelector('[role="tablist"]').addEventListener("keydown", (event) => {
  const at = kViews.findIndex((view) => byId(`tab-${view}`).getAttribute("aria-selected") === "true");
  const next = { ArrowRight: at + 1, ArrowLeft: at + kViews.length - 1, Home: 0, End: kViews.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  show(kViews[next % kViews.length], true);
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !dialog.open) chat.stop();
});
const settings = byId("settings"), wide = matchMedia("(min-width: 761px)");
const open = () => { settings.open = wide.matches; };
wide.addEventListener("change", open);
open();

// --- what goes on ---
const state = byId("state"), notices = [byId("live-notice"), byId("requests-notice")];
function setState(is, text, notice = "") {
  state.dataset.is = is;
  setText(byId("state-text"), text);
  for (const each of notices) {
    each.hidden = !notice;
    each.dataset.is = is;
    setText(each, notice);
  }
}
const poll = new LivePoll(
  (told) => {
    const n = told.workers.length;
    const what = told.draining ? "shutting down" : told.ready ? "ready" : "not ready";
    setState(told.ready ? "good" : "bad", `${what} · ${n} ${n === 1 ? "worker" : "workers"}`);
    setText(byId("state-model"), told.model);
    live.update(told);
    requests.update(told);
  },
  (error) => {
    if (!(error instanceof ApiError)) {
      setState("bad", "no connection", "The server does not answer. The page asks again.");
    } else if (error.status === 401 || error.status === 403) {
      setState("", "chat only",
        `${error.message} This view needs a key with the scope admin: choose Key, above.`);
    } else {
      setState("bad", `error ${error.status}`, error.message);
    }
    onError(error);
  });
onKey = () => {
  chat.loadModels();
  poll.ask();
};
const wished = location.hash.slice(2);
show(kViews.includes(wished) ? wished : "chat");
poll.ask();
