// The theme, before anything is painted: a module would come too late and flash.
(() => {
  const THEMES = ["auto", "light", "dark"];
  const NAME = "grapevine-theme";
  const stored = () => {
    try {
      return localStorage.getItem(NAME);
    } catch {
      return null; // storage may be refused
    }
  };
  const apply = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  let theme = THEMES.includes(stored()) ? stored() : "auto";
  apply(theme);

  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const say = () => (button.textContent = `Theme: ${theme}`);
    say();
    button.addEventListener("click", () => {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      apply(theme);
      say();
      try {
        localStorage.setItem(NAME, theme);
      } catch {
        // Then it lasts as long as the page.
      }
    });
  });
})();
