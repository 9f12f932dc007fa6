// Keeps an open page up to date. When /api/v1/events reports a change, the script
// fetches the page from its own address and updates its regions.
//
// A hidden tab fetches nothing: it closes the stream, and catches up when it is
// visible again.

import { morph } from "./morph.js";

const quiet = 300; // ms without news before the page is fetched
const atMost = 2000; // ms that news wait, however much of it there is
const giveUp = 20; // failures in a row
const loadedAgain = "terrier-loaded-again"; // when this tab last did so by itself
const atRest = 60000; // ms after which it may do so once more

const main = document.getElementById("page");
const indicator = document.querySelector("[data-live-indicator]");
const words = { live: "Live", reconnecting: "Reconnecting", away: "Not live", "signed-out": "Signed out" };

let source = null;
let cursor = main?.dataset.liveCursor ?? "";
let timer = 0;
let clock = 0;
let firstNews = 0;
let fetching = false;
let again = false;
let failures = 0;
let ended = false;

function say(state) {
  if (!indicator || indicator.dataset.state === state) return;
  indicator.hidden = false;
  indicator.dataset.state = state;
  if (state === "signed-out") {
    const link = document.createElement("a");
    link.href = `/sign-in?to=${encodeURIComponent(location.pathname + location.search)}`;
    link.textContent = "Signed out: sign in again";
    indicator.replaceChildren(link);
  } else if (state === "outdated") {
    const link = document.createElement("a");
    link.href = location.href;
    link.textContent = "Newer version: reload";
    link.addEventListener("click", (event) => {
      event.preventDefault(); // a link to a place in this page would load nothing
      location.reload();
    });
    indicator.replaceChildren(link);
  } else {
    indicator.textContent = words[state];
  }
}

// address is the address of the stream of this page; null if the page is only
// refreshed at an interval.
function address() {
  const { live, namespace, name } = main.dataset;
  if (!live) return null;
  const query = new URLSearchParams();
  if (live === "stack") query.set("stack", `${namespace}/${name}`);
  else if (new URLSearchParams(location.search).get("namespace")) query.set("namespace", new URLSearchParams(location.search).get("namespace"));
  if (cursor) query.set("cursor", cursor);
  return `/api/v1/events?${query}`;
}

function listen() {
  const from = address();
  if (!from || source || ended || document.hidden) return;
  source = new EventSource(from);
  source.onopen = () => {
    failures = 0;
    say("live");
    if (!cursor) soon(); // what changed while the page was on its way
  };
  const news = (event) => {
    if (event.lastEventId) cursor = event.lastEventId;
    soon();
  };
  source.addEventListener("stack", news);
  source.addEventListener("reset", news);
  source.onerror = () => {
    if (document.hidden || ended) return;
    say("reconnecting");
    // The browser reconnects by itself unless the server refused it; then the page shows why.
    if (source.readyState !== EventSource.CLOSED) return;
    release();
    failures++;
    if (failures > giveUp) say("away");
    else setTimeout(() => refetch().then(listen), Math.min(30000, 1000 * 2 ** failures));
  };
}

function release() {
  source?.close();
  source = null;
}

// soon fetches the page once no event has come for a moment.
function soon() {
  const now = Date.now();
  firstNews ||= now;
  clearTimeout(timer);
  timer = setTimeout(refetch, Math.max(0, Math.min(quiet, firstNews + atMost - now)));
}

async function refetch() {
  if (document.hidden || ended) return;
  if (fetching) {
    again = true;
    return;
  }
  fetching = true;
  firstNews = 0;
  try {
    const answer = await fetch(location.pathname + location.search, { headers: { Accept: "text/html" }, redirect: "manual" });
    if (answer.type === "opaqueredirect" || answer.status === 401) {
      ended = true;
      release();
      say("signed-out");
    } else if (answer.ok) {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (script(page) !== script(document)) {
        renew();
        return;
      }
      show(page);
      failures = 0;
      if (source?.readyState === EventSource.OPEN || !main.dataset.live) say("live");
    } else if (answer.status === 403 || answer.status === 404) {
      ended = true; // it is gone, or no longer for this reader: say so in its place
      release();
      show(new DOMParser().parseFromString(await answer.text(), "text/html"));
      say("away");
    } else {
      say("reconnecting");
    }
  } catch {
    say("reconnecting");
  } finally {
    fetching = false;
    if (again) {
      again = false;
      soon();
    }
  }
}

// script is the address of the scripts of a page; it changes with their content.
const script = (page) => page.querySelector('script[type="module"]')?.getAttribute("src");

// renew reloads a page after the server was upgraded: its scripts and style sheets
// do not fit what the server sends, and those that it has not loaded yet no longer
// exist. If the user has typed something, or while two versions answer in turn,
// the user reloads the page.
function renew() {
  ended = true;
  release();
  say("outdated");
  const last = Number(sessionStorage.getItem(loadedAgain));
  if (typed() || Math.abs(Date.now() - last) < atRest) return;
  sessionStorage.setItem(loadedAgain, String(Date.now()));
  location.reload();
}

// typed reports whether reloading the page would lose input.
function typed() {
  const changed = (field) => field.value !== field.defaultValue || Boolean(field.checked) !== Boolean(field.defaultChecked);
  if ([...document.querySelectorAll("input, textarea")].some(changed)) return true;
  return [...document.querySelectorAll("select")].some((list) => {
    const first = Math.max(0, [...list.options].findIndex((o) => o.defaultSelected));
    return list.selectedIndex !== first;
  });
}

const regions = (root) => [...root.querySelectorAll("[data-region]")].filter((r) => !r.parentElement.closest("[data-region]"));

// show updates this page to the other one. A page with other regions replaces this
// one as a whole, except for the sentence about an action.
function show(page) {
  const next = page.getElementById("page");
  if (!next) return;
  if (!source) cursor = next.dataset.liveCursor ?? "";
  const often = next.dataset.liveEvery ?? "";
  if (often !== (main.dataset.liveEvery ?? "")) {
    main.dataset.liveEvery = often;
    every();
  }
  const now = regions(main);
  const then = new Map(regions(next).map((r) => [r.dataset.region, r]));
  if (now.length !== then.size || !now.every((r) => then.has(r.dataset.region))) {
    morph(main, next);
    changed(main);
  } else {
    for (const region of now) {
      const other = then.get(region.dataset.region);
      if (region.isEqualNode(other)) continue;
      morph(region, other);
      changed(region);
    }
  }
  document.title = page.title;
}

function changed(element) {
  element.dispatchEvent(new CustomEvent("terrier:updated", { bubbles: true }));
}

// The server sends ages; between its responses they grow here.
function grow() {
  for (const time of main.querySelectorAll("time[datetime]")) {
    const at = Date.parse(time.dateTime);
    if (Number.isNaN(at) || time.dataset.exact !== undefined) continue;
    time.textContent = time.dataset.lasting === undefined ? age(Date.now() - at) : span(Date.now() - at);
  }
}

function span(ms) {
  const s = Math.abs(ms) / 1000;
  const [n, unit] = s >= 172800 ? [s / 86400, "d"] : s >= 7200 ? [s / 3600, "h"] : s >= 120 ? [s / 60, "m"] : [Math.max(1, s), "s"];
  return Math.floor(n) + unit;
}

function age(ms) {
  const text = span(ms);
  if (ms < 0) return `in ${text}`;
  return ms < 1000 ? "now" : `${text} ago`;
}

// The new page may have another refresh interval.
function every() {
  clearTimeout(clock);
  const ms = Number(main.dataset.liveEvery);
  if (!(ms > 0) || ended) return;
  const mine = setTimeout(async () => {
    await refetch();
    if (clock === mine) every();
  }, ms);
  clock = mine;
}

export function start() {
  if (!main) return;
  setInterval(() => document.hidden || grow(), 5000);
  if (!main.dataset.live && !main.dataset.liveEvery) return;
  listen();
  every();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      release();
      return;
    }
    refetch().then(listen);
  });
  addEventListener("pageshow", (event) => event.persisted && refetch().then(listen));
  addEventListener("pagehide", release);
}
