// A log that is long, or that grows. The script keeps all lines as text, and only
// the visible ones are in the page:
//
//   ┌ .loglines, scrolls ───────────────┐
//   │ space as high as the lines above  │
//   │ the visible lines, and some more  │
//   │ space as high as the lines below  │
//   └───────────────────────────────────┘
//
// The height of a line follows from its length, since the font is monospaced.
// Without scripts, the server shows a part of it.

import { plainPen, runs } from "./ansi.js";

const more = 20; // lines beyond those in sight

export function mount(root) {
  const list = root.querySelector(".loglines");
  const goes = root.dataset.goes !== undefined;
  links(root, list);
  if (!goes && !list.children.length) return;
  load(root, goes).then(
    ({ lines, bytes }) => new Log(root, list, lines).begin(goes ? `${root.dataset.timed}&after=${bytes}` : ""),
    (error) => console.error("the log cannot be loaded; the page shows a part of it", error),
  );
}

// load fetches the whole log, each line with its time. If it grows, the stream brings a last line that has
// no end yet.
async function load(root, goes) {
  const answer = await fetch(root.dataset.timed, { headers: { Accept: "text/plain" } });
  if (answer.status === 404 && goes) return { lines: [], bytes: 0 };
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  let bytes = new Uint8Array(await answer.arrayBuffer());
  if (goes) bytes = bytes.subarray(0, bytes.lastIndexOf(10) + 1);
  const lines = new TextDecoder().decode(bytes).split("\n");
  if (lines.at(-1) === "") lines.pop();
  return { lines, bytes: bytes.length };
}

// links makes a click on a number copy the address of its line.
function links(root, list) {
  list.addEventListener("click", (event) => {
    const number = event.target.closest("a.n");
    if (!number) return;
    event.preventDefault();
    history.replaceState(null, "", number.hash);
    for (const old of list.querySelectorAll(".chosen")) old.classList.remove("chosen");
    number.parentElement.classList.add("chosen");
    navigator.clipboard?.writeText(location.href).then(() => say(root, "Link copied"), () => {});
  });
}

function say(root, text) {
  const state = root.querySelector('[data-log="state"]');
  if (state) state.textContent = text;
}

const isStep = (line) => /^[$#] /.test(line);
const kinds = [[/^[$#] /, "step"], [/^(│ )?[Ee]rror: /, "error"], [/^(│ )?[Ww]arning: /, "warning"]];

// cutTime cuts a line into its time and its text. A hyphen is in the place of a time
// that is not known.
function cutTime(timed) {
  const [, time, line] = /^(-|\d{4}-\d\d-\d\dT[\d:.]+Z) (.*)$/s.exec(timed) ?? [null, "-", timed];
  return [time === "-" ? "" : time, line];
}

// written shows the time of a line.
function written(at) {
  const time = document.createElement("time");
  time.className = "t";
  time.dateTime = time.title = at;
  time.textContent = at.slice(11, 19);
  return time;
}

class Log {
  constructor(root, list, lines) {
    this.root = root;
    this.list = list;
    this.lines = [];
    this.times = []; // when each line was written, empty if that is not known
    this.pens = [plainPen]; // that each line begins with
    this.tops = [0]; // rows above each line
    this.folded = new Set(); // steps
    this.step = -1; // the last heading
    this.steps = []; // of each line, the heading it is below
    this.wrap = true;
    this.matches = [];
    this.match = -1;
    this.query = "";
    this.follows = false;
    this.drawn = "";
    this.measure();
    for (const line of lines) this.add(line);
  }

  begin(stream) {
    const { root, list } = this;
    root.classList.add("is-virtual");
    for (const part of root.querySelectorAll(".part")) part.hidden = true;
    root.querySelector(".logtools").hidden = false;
    for (const part of document.querySelectorAll(".loghead a[data-part]")) part.hidden = true;
    this.above = document.createElement("li");
    this.below = document.createElement("li");
    for (const space of [this.above, this.below]) space.setAttribute("aria-hidden", "true");
    list.replaceChildren(this.above, this.below);
    list.addEventListener("scroll", () => this.scrolled(), { passive: true });
    list.addEventListener("click", (event) => this.clicked(event));
    list.addEventListener("keydown", (event) => this.key(event));
    addEventListener("hashchange", () => this.toHash());
    new ResizeObserver(() => this.resized()).observe(list);
    this.tools();
    this.draw();
    this.count();
    if (!this.toHash() && (stream || !new URLSearchParams(location.search).has("from"))) this.toEnd();
    else if (!location.hash) this.toLine(Number(new URLSearchParams(location.search).get("from")) - 1);
    if (stream) this.follow(stream);
  }

  // add takes one more line. The caller draws the page.
  add(timed) {
    const n = this.lines.length;
    const [time, line] = cutTime(timed);
    this.times.push(time);
    this.lines.push(line);
    const pen = this.pens[n];
    // eslint-disable-next-line no-control-regex
    this.pens.push(/[\x1b\x9b]/.test(line) ? runs(line, pen).pen : pen);
    if (isStep(line)) this.step = n;
    this.steps.push(this.step);
    this.tops.push(this.tops[n] + this.rows(n));
  }

  count() {
    const said = document.querySelector("[data-log-lines]");
    if (said) said.textContent = this.lines.length === 1 ? "1 line" : `${this.lines.length.toLocaleString("en")} lines`;
  }

  rows(n) {
    if (this.steps[n] !== n && this.folded.has(this.steps[n])) return 0;
    return this.wrap ? Math.max(1, Math.ceil(this.lines[n].length / this.columns)) : 1;
  }

  // measure computes the size of a letter, and how many fit in a row.
  measure() {
    const line = document.createElement("li");
    const number = document.createElement("a");
    const code = document.createElement("code");
    number.className = "n";
    number.textContent = "0";
    code.textContent = "0".repeat(100);
    const time = written("2026-03-14T15:04:05.678Z");
    line.append(number, time, code);
    line.className = "probe";
    code.style.flex = "none";
    code.style.whiteSpace = "pre";
    code.style.padding = "0";
    this.list.append(line);
    this.height = line.getBoundingClientRect().height || 20;
    const letter = code.getBoundingClientRect().width / 100 || 8;
    const room = this.list.clientWidth - number.getBoundingClientRect().width - time.getBoundingClientRect().width - 16;
    line.remove();
    this.columns = Math.max(10, Math.floor(room / letter));
  }

  relayout() {
    for (let n = 0; n < this.lines.length; n++) this.tops[n + 1] = this.tops[n] + this.rows(n);
    this.drawn = "";
    this.draw();
  }

  resized() {
    const was = this.columns;
    const at = this.first();
    this.measure();
    if (was === this.columns) return this.draw();
    this.relayout();
    if (this.follows) this.toEnd();
    else this.toLine(at);
  }

  // at is the line at a row.
  at(row) {
    let low = 0;
    let high = this.lines.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.tops[middle + 1] <= row) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  first() {
    return this.at(this.list.scrollTop / this.height);
  }

  draw() {
    const total = this.tops[this.lines.length];
    const top = this.list.scrollTop / this.height;
    const from = Math.max(0, this.at(top) - more);
    const to = Math.min(this.lines.length, this.at(top + this.list.clientHeight / this.height) + more);
    const drawn = `${from} ${to} ${this.query} ${this.match} ${this.folded.size} ${this.columns} ${this.wrap}`;
    this.above.style.height = `${this.tops[from] * this.height}px`;
    this.below.style.height = `${(total - this.tops[to]) * this.height}px`;
    this.list.style.maxHeight = this.stream ? "" : `${Math.ceil(total * this.height) + 24}px`; // a short log takes less room
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const lines = [];
    for (let n = from; n < to; n++) if (this.tops[n + 1] > this.tops[n]) lines.push(this.line(n));
    while (this.above.nextSibling !== this.below) this.above.nextSibling.remove();
    this.above.after(...lines);
  }

  line(n) {
    const item = document.createElement("li");
    item.id = `L${n + 1}`;
    const kind = kinds.find(([shape]) => shape.test(this.lines[n]));
    if (kind) item.classList.add(kind[1]);
    if (this.matches[this.match] === n) item.classList.add("found");
    if (location.hash === `#${item.id}`) item.classList.add("chosen");
    const number = document.createElement("a");
    number.className = "n";
    number.href = `#${item.id}`;
    number.textContent = n + 1;
    const code = document.createElement("code");
    for (const { classes, text } of runs(this.lines[n], this.pens[n]).runs) {
      const piece = classes ? document.createElement("span") : document.createDocumentFragment();
      if (classes) piece.className = classes;
      this.mark(piece, text);
      code.append(piece);
    }
    item.append(number);
    if (this.times[n]) item.append(written(this.times[n]));
    item.append(code);
    if (this.steps[n] === n) {
      const fold = document.createElement("button");
      fold.type = "button";
      fold.className = "button quiet foldstep";
      fold.dataset.step = n;
      fold.setAttribute("aria-expanded", String(!this.folded.has(n)));
      fold.textContent = this.folded.has(n) ? "Expand" : "Collapse";
      item.append(fold);
    }
    return item;
  }

  // mark writes text and marks the matches of the search.
  mark(into, text) {
    if (!this.query) return into.append(text);
    const lower = text.toLowerCase();
    let at = 0;
    for (let i = lower.indexOf(this.query); i >= 0; i = lower.indexOf(this.query, at)) {
      const found = document.createElement("mark");
      found.textContent = text.slice(i, i + this.query.length);
      into.append(text.slice(at, i), found);
      at = i + this.query.length;
    }
    into.append(text.slice(at));
  }

  toLine(n) {
    if (!(n >= 0 && n < this.lines.length)) return;
    const step = this.steps[n];
    if (step !== n && this.folded.delete(step)) this.relayout();
    this.list.scrollTop = Math.max(0, (this.tops[n] - 4) * this.height);
    this.draw();
  }

  toEnd() {
    this.list.scrollTop = this.list.scrollHeight;
    this.draw();
  }

  toHash() {
    const n = Number(/^#L(\d+)$/.exec(location.hash)?.[1]) - 1;
    if (!(n >= 0)) return false;
    this.pause();
    this.drawn = "";
    this.toLine(n);
    return true;
  }

  scrolled() {
    if (this.stream) {
      const end = this.list.scrollHeight - this.list.clientHeight - this.list.scrollTop < 2 * this.height;
      if (end !== this.follows) this.setFollows(end);
    }
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.draw());
  }

  clicked(event) {
    const fold = event.target.closest(".foldstep");
    if (!fold) return;
    const step = Number(fold.dataset.step);
    if (!this.folded.delete(step)) this.folded.add(step);
    this.pause();
    this.relayout();
    this.list.querySelector(`[data-step="${step}"]`)?.focus();
  }

  key(event) {
    if (event.key === "End") this.toEnd();
    else if (event.key === "Home") this.list.scrollTop = 0;
    else return;
    event.preventDefault();
  }

  tools() {
    const tool = (name) => this.root.querySelector(`[data-log="${name}"]`);
    this.followButton = tool("follow");
    this.followButton.addEventListener("click", () => {
      this.setFollows(!this.follows);
      if (this.follows) this.toEnd();
    });
    tool("wrap").addEventListener("click", (event) => {
      const at = this.first();
      this.wrap = !this.wrap;
      event.currentTarget.setAttribute("aria-pressed", String(this.wrap));
      this.list.classList.toggle("nowrap", !this.wrap);
      this.relayout();
      this.toLine(at + 4);
    });
    this.timesButton = tool("times");
    this.timesButton.addEventListener("click", () => {
      const hidden = this.root.classList.contains("with-times");
      localStorage.setItem("log-times", hidden ? "hidden" : "shown");
      this.showTimes(!hidden);
      this.resized();
    });
    this.showTimes(!this.timesButton.hidden && localStorage.getItem("log-times") !== "hidden");
    const field = this.root.querySelector(".logtools input");
    let timer = 0;
    field.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.search(field.value), 120);
    });
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.next(event.shiftKey ? -1 : 1);
    });
    tool("on").addEventListener("click", () => this.next(1));
    tool("back").addEventListener("click", () => this.next(-1));
  }

  showTimes(yes) {
    this.root.classList.toggle("with-times", yes);
    this.timesButton.setAttribute("aria-pressed", String(yes));
  }

  search(text) {
    this.query = text.toLowerCase();
    this.matches = [];
    this.match = -1;
    if (this.query) this.lines.forEach((line, n) => this.matchIn(line, n));
    this.next(1);
  }

  matchIn(line, n) {
    if (!line.toLowerCase().includes(this.query)) {
      // eslint-disable-next-line no-control-regex
      if (!/[\x1b\x9b]/.test(line)) return;
      if (!runs(line, plainPen).runs.map((r) => r.text).join("").toLowerCase().includes(this.query)) return;
    }
    this.matches.push(n);
  }

  // next goes to the next match: at first to the one after the first visible line.
  next(by) {
    const count = this.matches.length;
    if (count && this.match < 0) this.match = Math.max(0, this.matches.findIndex((n) => n >= this.first()));
    else if (count) this.match = (this.match + by + count) % count;
    if (count) {
      this.pause();
      this.toLine(this.matches[this.match]);
    }
    this.draw();
    this.found();
  }

  found() {
    const count = this.matches.length;
    this.root.querySelector('[data-log="found"]').textContent = !this.query ? "" : count ? `${this.match + 1} of ${count}` : "no matches";
  }

  pause() {
    if (this.follows) this.setFollows(false);
  }

  setFollows(yes) {
    this.follows = yes;
    this.followButton.setAttribute("aria-pressed", String(yes));
    if (this.stream) say(this.root, yes ? "Following" : "Paused");
  }

  // follow receives what the run writes from now on.
  follow(address) {
    this.followButton.hidden = false;
    this.stream = new EventSource(address);
    this.setFollows(!/^#L\d+$/.test(location.hash));
    let waiting = [];
    const take = () => {
      const known = this.lines.length;
      for (const line of waiting) this.add(line);
      waiting = [];
      if (this.query) for (let n = known; n < this.lines.length; n++) this.matchIn(this.lines[n], n);
      if (this.query) this.found();
      this.drawn = "";
      this.draw();
      this.count();
      if (this.follows) this.toEnd();
    };
    this.stream.onmessage = (event) => {
      if (!waiting.length) requestAnimationFrame(take);
      waiting.push(event.data);
    };
    this.stream.onopen = () => say(this.root, this.follows ? "Following" : "Paused");
    this.stream.addEventListener("end", (event) => {
      let outcome = "";
      try {
        outcome = JSON.parse(event.data).outcome ?? "";
      } catch {
        // The page of the run shows the outcome.
      }
      this.close(outcome ? `The run has ended: ${outcome}` : "The run has ended");
    });
    this.stream.onerror = () => {
      if (this.stream?.readyState === EventSource.CLOSED) this.close("Disconnected: reload the page");
      else say(this.root, "Reconnecting");
    };
  }

  close(text) {
    this.stream?.close();
    this.stream = null;
    this.followButton.hidden = true;
    say(this.root, text);
  }
}
