// Sets the chosen theme before the browser paints. This script is not a module, so
// that the browser waits for it.
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage there is no chosen theme.
}
