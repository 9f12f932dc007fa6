// Keys, the theme, and copy buttons.

import { open } from "./palette.js";

const root = document.documentElement;

// unhide shows an element that needs scripts.
function unhide(element) {
  element.hidden = false;
  element.dataset.unhidden = "";
}

function typing(target) {
  return target.isContentEditable || target.matches?.("input:not([type=checkbox]), textarea, select");
}

function keys(event) {
  if (event.defaultPrevented || event.isComposing) return;
  if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k" && document.querySelector("[data-palette]")) {
    event.preventDefault();
    open();
  } else if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !typing(event.target)) {
    const field = document.querySelector("[data-slash]");
    if (!field) return;
    event.preventDefault();
    field.focus();
    field.select();
  }
}

const themes = ["auto", "light", "dark"];

function theme() {
  return themes.includes(root.dataset.theme) ? root.dataset.theme : "auto";
}

function turn(button) {
  const next = themes[(themes.indexOf(theme()) + 1) % themes.length];
  if (next === "auto") delete root.dataset.theme;
  else root.dataset.theme = next;
  try {
    if (next === "auto") localStorage.removeItem("theme");
    else localStorage.setItem("theme", next);
  } catch {
    // Without storage, the choice is for this page only.
  }
  label(button);
}

function label(button) {
  const now = theme();
  button.querySelector("span").textContent = { auto: "Auto", light: "Light", dark: "Dark" }[now];
  button.title = `The theme is ${now === "auto" ? "that of the system" : now}. Click to change it.`;
  button.setAttribute("aria-label", `Theme: ${now}`);
}

async function copy(button) {
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.dataset.copied = "";
    setTimeout(() => delete button.dataset.copied, 1500);
  } catch {
    // Without access to the clipboard, the visitor can still select the text.
  }
}

function findCopies(scope) {
  if (!navigator.clipboard) return;
  for (const button of scope.querySelectorAll("[data-copy][hidden]")) unhide(button);
}

// The sentence about an action is shown once, and not again when the page is
// reloaded.
function forgetSaid() {
  const here = new URL(location.href);
  if (!here.searchParams.has("done")) return;
  here.searchParams.delete("done");
  history.replaceState(history.state, "", here);
}

export function start() {
  forgetSaid();
  document.addEventListener("keydown", keys);
  for (const button of document.querySelectorAll("[data-palette]")) {
    if (/Mac|iP(hone|ad)/.test(navigator.platform)) button.querySelector("kbd").textContent = "⌘ K";
    unhide(button);
    button.addEventListener("click", open);
  }
  for (const button of document.querySelectorAll("[data-theme-switch]")) {
    label(button);
    unhide(button);
    button.addEventListener("click", () => turn(button));
  }
  findCopies(document);
  document.addEventListener("terrier:updated", (event) => findCopies(event.target));
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-copy]");
    if (button) copy(button);
  });
  document.addEventListener("change", (event) => event.target.closest("form[data-submit-on-change]")?.requestSubmit());
  // A menu over the page closes with Escape, or with a click elsewhere.
  const shut = (target) => {
    for (const open of document.querySelectorAll("details:is(.me, .more)[open]")) if (!target || !open.contains(target)) open.open = false;
  };
  document.addEventListener("pointerdown", (event) => shut(event.target));
  document.addEventListener("keydown", (event) => event.key === "Escape" && shut(null));
  // A second click on a submitted form sends nothing twice.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post" || event.defaultPrevented) return;
    if (form.dataset.sent !== undefined) event.preventDefault();
    form.dataset.sent = "";
    setTimeout(() => delete form.dataset.sent, 5000);
  });
  addEventListener("pageshow", () => document.querySelectorAll("form[data-sent]").forEach((form) => delete form.dataset.sent));
}
