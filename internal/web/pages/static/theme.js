// The theme that was chosen, before anything is painted: this is no module, so
// that the browser waits for it.
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // No storage, no choice.
}
