// What makes the page better where scripts run: sorting, long tables that open, the player.
(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const SHOWN = 25; // as in page.css
  document.documentElement.classList.add("js");

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    const text = (row, k) => row.cells[k].textContent.trim();
    const number = (words) => Number.parseFloat(words.replaceAll(",", "").replace("−", "-"));
    heads.forEach((head, k) => {
      const numeric = head.classList.contains("number");
      const button = spenElements.make("button", { type: "button" }, head.textContent);
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        // Numbers begin with the largest, names with the first.
        const begin = numeric ? "descending" : "ascending", other = numeric ? "ascending" : "descending";
        const order = head.ariaSort === begin ? other : begin, sign = order === "ascending" ? 1 : -1;
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.ariaSort = order;
        const rows = [...body.rows].map((row) => [row, numeric ? number(text(row, k)) : text(row, k)]);
        const compare = ([, a], [, b]) => {
          if (!numeric) return sign * a.localeCompare(b);
          // What has no number stays below, whichever way.
          if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
          return sign * (a - b);
        };
        body.append(...rows.sort(compare).map(([row]) => row));
      });
    });
  }

  // A long table begins with its first rows, and says how many more there are; the style sheet hides them.
  function opening(part) {
    const rows = part.querySelectorAll("tbody tr").length;
    if (rows <= SHOWN + 5) return;
    const open = () => { part.classList.remove("short"); button.remove(); };
    const words = `Show all ${rows.toLocaleString("en")}: ${(rows - SHOWN).toLocaleString("en")} more`;
    const button = spenElements.make("button", { type: "button", class: "more", click: open }, words);
    part.classList.add("short");
    part.append(button);
  }

  document.querySelectorAll("table.sortable").forEach(sortable);
  document.querySelectorAll(".long").forEach(opening);
  const player = document.getElementById("player");
  if (player && facts.examples) new spenPlayer.Player(player, facts.examples);
  if (player && facts.sentences) new spenTagging.Tagging(player, facts.sentences);
})();
