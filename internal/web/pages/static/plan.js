// A plan: search without a click, and all changes opened or closed at once. The
// search runs on the server, so that it finds what is not on this page.

const pause = 180; // ms after the last key

export function mount(root) {
  const folds = root.querySelectorAll("[data-fold]");
  for (const button of folds) {
    button.hidden = false;
    button.addEventListener("click", () => {
      for (const change of root.querySelectorAll("details.change")) change.open = button.dataset.fold === "open";
    });
  }
  const form = root.querySelector("form[role=search]");
  const field = form?.querySelector("input[type=search]");
  if (form && field) search(root, form, field);
  reveal(root);
  addEventListener("hashchange", () => reveal(root));
}

// reveal opens the change that the address names.
function reveal(root) {
  const id = decodeURIComponent(location.hash.slice(1));
  const change = id && root.ownerDocument.getElementById(id);
  if (change instanceof HTMLDetailsElement && root.contains(change)) {
    change.open = true;
    change.scrollIntoView({ block: "start" });
  }
}

function search(root, form, field) {
  let timer = 0;
  let asked;
  const look = async () => {
    const address = new URL(form.action);
    address.search = new URLSearchParams(new FormData(form)).toString();
    asked?.abort();
    asked = new AbortController();
    try {
      const answer = await fetch(address, { signal: asked.signal, headers: { Accept: "text/html" } });
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const found = page.querySelector('[data-part="changes"]');
      if (!found) return;
      const keep = form; // what is typed meanwhile stays
      const fresh = [...found.children].filter((e) => !e.matches("form, .plantabs"));
      for (const old of [...root.children]) if (old !== keep && !old.matches(".plantabs")) old.remove();
      for (const e of fresh) root.append(document.adoptNode(e));
      history.replaceState(null, "", address);
    } catch (error) {
      if (error.name !== "AbortError") form.submit();
    }
  };
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, pause);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(timer);
    look();
  });
}
