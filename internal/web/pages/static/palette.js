// The search with Ctrl-K or Cmd-K: type, select with the arrows, open with Enter.
// This script knows the pages; the API finds stacks.

const pages = [...document.querySelectorAll(".menu a")].map((a) => ({ name: a.textContent.trim(), href: a.getAttribute("href"), what: "Page" }));
const wait = 120; // ms after the last key before stacks are asked for

let dialog = null;
let input, list, hint, options, active, timer, asked;

function build() {
  dialog = document.createElement("dialog");
  dialog.className = "palette";
  dialog.setAttribute("aria-label", "Search stacks and pages");
  input = document.createElement("input");
  Object.assign(input, { type: "search", placeholder: "Search stacks and pages", autocomplete: "off", spellcheck: false });
  for (const [name, value] of Object.entries({ role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-autocomplete": "list", "aria-label": "Search stacks and pages" })) input.setAttribute(name, value);
  list = document.createElement("ul");
  list.id = "palette-list";
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Results");
  hint = document.createElement("p");
  hint.className = "muted";
  hint.setAttribute("role", "status");
  dialog.append(input, list, hint);
  document.body.append(dialog);
  input.addEventListener("input", ask);
  input.addEventListener("keydown", steer);
  list.addEventListener("click", (event) => {
    const option = event.target.closest("[role=option]");
    if (option) go(options[Number(option.dataset.index)], event.metaKey || event.ctrlKey);
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
}

export function open() {
  if (!dialog) build();
  if (dialog.open) return;
  input.value = "";
  dialog.showModal();
  offer(pages, "");
  ask();
}

function steer(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    choose((active + step + options.length) % Math.max(1, options.length));
  } else if (event.key === "Enter") {
    event.preventDefault();
    if (options[active]) go(options[active], event.metaKey || event.ctrlKey);
  }
}

function go(option, elsewhere) {
  dialog.close();
  if (elsewhere) window.open(option.href, "_blank", "noopener");
  else location.assign(option.href);
}

function offer(found, note) {
  options = found;
  list.replaceChildren(...found.map((o, i) => {
    const item = document.createElement("li");
    item.id = `palette-${i}`;
    item.dataset.index = i;
    item.setAttribute("role", "option");
    const name = document.createElement("bdi");
    name.textContent = o.name;
    const what = document.createElement("span");
    what.className = "muted";
    what.textContent = o.what;
    item.append(name, what);
    return item;
  }));
  hint.textContent = note;
  choose(0);
}

function choose(i) {
  active = i;
  for (const item of list.children) item.setAttribute("aria-selected", String(Number(item.dataset.index) === i));
  const item = list.children[i];
  if (item) {
    input.setAttribute("aria-activedescendant", item.id);
    item.scrollIntoView({ block: "nearest" });
  } else {
    input.removeAttribute("aria-activedescendant");
  }
}

function ask() {
  clearTimeout(timer);
  const text = input.value.trim();
  const named = pages.filter((p) => p.name.toLowerCase().includes(text.toLowerCase()));
  offer(named, text ? "Searching…" : "Type part of a stack's name.");
  if (!text) return;
  timer = setTimeout(async () => {
    asked?.abort();
    asked = new AbortController();
    try {
      const answer = await fetch(`/api/v1/stacks?limit=20&q=${encodeURIComponent(text)}`, { headers: { Accept: "application/json" }, signal: asked.signal });
      if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
      const { items, total } = await answer.json();
      const stacks = items.map((s) => ({
        name: `${s.namespace}/${s.name}`, what: s.kind ? `${s.status}, ${s.kind}` : s.status,
        href: `/stacks/${encodeURIComponent(s.namespace)}/${encodeURIComponent(s.kind ? `${s.kind}:${s.name}` : s.name)}`,
      }));
      const rest = total > stacks.length ? [{ name: `${total === 1 ? "The stack" : `All ${total} stacks`} with “${text}”`, what: "Search", href: `/stacks?q=${encodeURIComponent(text)}` }] : [];
      const all = [...stacks, ...named, ...rest];
      offer(all, all.length ? `${all.length} result${all.length === 1 ? "" : "s"}` : "No matches.");
    } catch (error) {
      if (error.name !== "AbortError") offer(named, `Searching stacks failed: ${error.message}`);
    }
  }, wait);
}
