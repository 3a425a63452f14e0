// What makes the page better where scripts run: sorting, the matrix that tells its numbers, the player.
(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  document.documentElement.classList.add("js");

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    const text = (row, k) => row.cells[k].textContent.trim();
    const number = (words) => Number.parseFloat(words.replaceAll(",", "").replace("−", "-"));
    heads.forEach((head, k) => {
      const numeric = head.classList.contains("number");
      const button = spenPlayer.make("button", { type: "button" }, head.textContent);
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

  // The weight under the pointer; the table beside the picture has the strongest ones for all.
  function readable(image, matrix) {
    const values = new Int8Array(spenPlayer.bytes(matrix.values)), [rows, columns] = matrix.shape;
    const readout = document.getElementById("matrix-readout");
    image.addEventListener("pointermove", (event) => {
      const box = image.getBoundingClientRect(), inside = (x) => Math.min(Math.max(x, 0), 0.999999);
      const row = Math.floor(inside((event.clientY - box.top) / box.height) * rows);
      const column = Math.floor(inside((event.clientX - box.left) / box.width) * columns);
      const weight = (values[row * columns + column] / 127) * matrix.limit;
      const [label, measurement] = matrix.labels_across ? [column, row] : [row, column];
      readout.textContent = `${matrix.names[label]}, measurement ${matrix.rows[measurement]}: ${weight.toFixed(2)}`;
    });
  }

  document.querySelectorAll("table.sortable").forEach(sortable);
  const image = document.getElementById("matrix");
  if (image && facts.matrix) readable(image, facts.matrix);
  const player = document.getElementById("player");
  if (player && facts.examples) new spenPlayer.Player(player, facts.examples);
})();
