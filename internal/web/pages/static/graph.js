// The picture of a graph: dragging and the arrow keys move it; the wheel (after a
// click, or with Ctrl), two fingers, plus, minus and 0 zoom it. Without this script
// it scrolls.

const step = 1.25;
const closest = 0.15; // of the size it was drawn in
const widest = 3;

export function mount(root) {
  const picture = root.querySelector(".picture");
  const svg = root.querySelector("svg.drawing");
  if (!picture || !svg) return;
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const take = () => {
    root.classList.add("is-live");
    root.querySelector(".graphtools").hidden = false;
    svg.removeAttribute("width");
    svg.removeAttribute("height");
  };
  take();
  const view = { x: 0, y: 0, scale: 1 }; // of the upper left corner, in the drawing

  const show = () => {
    const frame = picture.getBoundingClientRect();
    view.scale = Math.min(widest, Math.max(closest, view.scale));
    svg.setAttribute("viewBox", `${view.x} ${view.y} ${frame.width / view.scale} ${frame.height / view.scale}`);
  };
  const fit = () => {
    const frame = picture.getBoundingClientRect();
    view.scale = Math.min(1.25, frame.width / (width + 20), frame.height / (height + 20));
    view.x = (width - frame.width / view.scale) / 2;
    view.y = (height - frame.height / view.scale) / 2;
    show();
  };
  // start shows the whole graph if it is readable then, else the requested stack.
  const start = () => {
    fit();
    const self = svg.querySelector(".node-self");
    if (view.scale >= 0.55 || !self) return;
    const [, x, y] = self.getAttribute("transform").match(/(-?\d+),(-?\d+)/).map(Number);
    const frame = picture.getBoundingClientRect();
    view.scale = 0.8;
    view.x = x + 100 - frame.width / view.scale / 2;
    view.y = y + 23 - frame.height / view.scale / 2;
    show();
  };
  const zoom = (by, at) => {
    const frame = picture.getBoundingClientRect();
    const px = at ? at.x - frame.left : frame.width / 2;
    const py = at ? at.y - frame.top : frame.height / 2;
    const was = view.scale;
    view.scale = Math.min(widest, Math.max(closest, was * by));
    view.x += px / was - px / view.scale;
    view.y += py / was - py / view.scale;
    show();
  };
  const move = (dx, dy) => {
    view.x += dx / view.scale;
    view.y += dy / view.scale;
    show();
  };

  root.querySelector('[data-graph="in"]').addEventListener("click", () => zoom(step));
  root.querySelector('[data-graph="out"]').addEventListener("click", () => zoom(1 / step));
  root.querySelector('[data-graph="fit"]').addEventListener("click", fit);
  picture.addEventListener("wheel", (event) => {
    // The wheel scrolls the page until the user has clicked the graph.
    if (!event.ctrlKey && !event.metaKey && !picture.contains(document.activeElement)) return;
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), { x: event.clientX, y: event.clientY });
  }, { passive: false });
  const keys = {
    ArrowLeft: () => move(-60, 0), ArrowRight: () => move(60, 0), ArrowUp: () => move(0, -60), ArrowDown: () => move(0, 60),
    "+": () => zoom(step), "=": () => zoom(step), "-": () => zoom(1 / step), 0: fit,
  };
  picture.addEventListener("keydown", (event) => {
    const key = keys[event.key];
    if (!key || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    key();
  });
  drag(picture, move, zoom);
  // A node that gets the focus from the keyboard moves into view.
  svg.addEventListener("focusin", (event) => {
    const node = event.target.closest(".node");
    const at = node?.getBoundingClientRect();
    const frame = picture.getBoundingClientRect();
    if (!at || (at.left >= frame.left && at.right <= frame.right && at.top >= frame.top && at.bottom <= frame.bottom)) return;
    move((at.left + at.right - frame.left - frame.right) / 2, (at.top + at.bottom - frame.top - frame.bottom) / 2);
  });
  new ResizeObserver(show).observe(picture);
  // An update of the page resets what is shown.
  root.closest("[data-region]")?.addEventListener("terrier:updated", () => {
    take();
    show();
  });
  start();
}

// drag follows one pointer, or two that pinch. A drag is no click on a link.
function drag(picture, move, zoom) {
  const pointers = new Map();
  let moved = 0;
  picture.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    moved = 0;
  });
  picture.addEventListener("pointermove", (event) => {
    const was = pointers.get(event.pointerId);
    if (!was) return;
    const now = { x: event.clientX, y: event.clientY };
    if (pointers.size === 2) {
      const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
      const far = (a, b) => Math.hypot(a.x - b.x, a.y - b.y) || 1;
      zoom(far(now, other) / far(was, other), { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 });
    } else {
      moved += Math.abs(now.x - was.x) + Math.abs(now.y - was.y);
      if (moved > 5 && !picture.hasPointerCapture(event.pointerId)) picture.setPointerCapture(event.pointerId);
      if (moved > 5) {
        picture.classList.add("is-dragged");
        move(was.x - now.x, was.y - now.y);
      }
    }
    pointers.set(event.pointerId, now);
  });
  const end = (event) => {
    pointers.delete(event.pointerId);
    picture.classList.remove("is-dragged");
  };
  picture.addEventListener("pointerup", end);
  picture.addEventListener("pointercancel", end);
  picture.addEventListener("click", (event) => {
    if (moved > 5) event.preventDefault();
    moved = 0;
  }, true);
  picture.addEventListener("dragstart", (event) => event.preventDefault());
}
