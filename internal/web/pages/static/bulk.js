// The selection in a list: all rows at once, ranges with Shift, and the count.

export function mount(form) {
  const boxes = () => [...form.querySelectorAll("input[name=stack]")];
  let last = null;

  function head() {
    const cell = form.querySelector("thead .pick");
    if (!cell || cell.querySelector("input")) return;
    const all = document.createElement("input");
    all.type = "checkbox";
    all.dataset.all = "";
    all.setAttribute("aria-label", "Select all rows of this page");
    cell.replaceChildren(all);
  }

  function count() {
    head();
    const n = boxes().filter((b) => b.checked).length;
    const all = form.querySelector("[data-all]");
    if (all) {
      all.checked = n > 0 && n === boxes().length;
      all.indeterminate = n > 0 && n < boxes().length;
    }
    form.classList.toggle("chosen", n > 0);
    const note = form.querySelector("[data-chosen]");
    const text = n === 0 ? "Selected:" : `${n} selected:`;
    if (note && note.textContent !== text) note.textContent = text;
  }

  form.addEventListener("click", (event) => {
    const box = event.target;
    if (box.matches?.("[data-all]")) {
      for (const b of boxes()) b.checked = box.checked;
    } else if (box.matches?.("input[name=stack]")) {
      const all = boxes();
      if (event.shiftKey && last && all.includes(last)) {
        const [from, to] = [all.indexOf(last), all.indexOf(box)].sort((a, b) => a - b);
        for (const b of all.slice(from, to + 1)) b.checked = box.checked;
      }
      last = box;
    } else {
      return;
    }
    count();
  });
  document.addEventListener("terrier:updated", (event) => event.target.contains(form) && count());
  count();
}
