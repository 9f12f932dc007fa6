// j and k go from one entry to the next, Enter opens it.

export function mount(region) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !region.isConnected) return;
    if (event.target.matches?.("input, textarea, select, [contenteditable]")) return;
    const entries = [...region.querySelectorAll("[data-walk]")];
    const at = entries.findIndex((e) => e.contains(document.activeElement));
    if (event.key === "j" || event.key === "k") {
      const next = entries[Math.min(entries.length - 1, Math.max(0, at + (event.key === "j" ? 1 : -1)))];
      next?.focus();
      next?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter" && at >= 0 && document.activeElement === entries[at]) {
      entries[at].querySelector("a[href]")?.click();
    }
  });
}
