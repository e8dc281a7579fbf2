// Before anything is painted: the colours that were chosen here last, else the system's.
(() => {
  try {
    const chosen = localStorage.getItem("theme");
    if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
  } catch { /* no storage: the system's colours */ }
})();
