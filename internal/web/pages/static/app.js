// Loads the scripts of a page, which is complete without them. An element with
// data-island="name" is passed to static/name.js, which exports mount(element):
// once for each element, also for those that an update of the page adds.

import { start as startKeys } from "./keys.js";
import { start as startLive } from "./live.js";

const mounted = new WeakSet();

function mountAll(root) {
  const found = [...root.querySelectorAll("[data-island]")];
  if (root.matches?.("[data-island]")) found.push(root);
  for (const element of found) {
    if (mounted.has(element)) continue;
    mounted.add(element);
    const name = element.dataset.island;
    if (!/^[a-z][a-z0-9-]*$/.test(name)) continue;
    import(new URL(`./${name}.js`, import.meta.url)).then(
      (island) => island.mount(element),
      (error) => console.error(`the script ${name} cannot be loaded`, error),
    );
  }
}

// On a narrow page the current entry of a menu or of tabs may be outside of the
// visible part of its row.
function showCurrent() {
  for (const current of document.querySelectorAll(":is(.menu, .tabs) [aria-current]")) {
    const row = current.closest(".menu, .tabs");
    const [inner, outer] = [current.getBoundingClientRect(), row.getBoundingClientRect()];
    if (inner.left < outer.left || inner.right > outer.right) row.scrollLeft += inner.left + inner.width / 2 - outer.left - outer.width / 2;
  }
}

showCurrent();
mountAll(document);
document.addEventListener("terrier:updated", (event) => mountAll(event.target));
startKeys();
startLive();
