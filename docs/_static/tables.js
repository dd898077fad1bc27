// Tables of class "sortable": a click on a heading sorts, a box above filters by words. No library, works off line.
(function () {
  "use strict";

  function key(cell) {
    const text = cell.dataset.value ?? cell.textContent.trim();
    const number = Number(text);
    return text !== "" && !Number.isNaN(number) ? number : text.toLowerCase();
  }

  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number") return -1;
    if (typeof b === "number") return 1;
    return a.localeCompare(b);
  }

  function sortable(table) {
    const body = table.tBodies[0];
    const headings = Array.from(table.tHead.rows[0].cells);
    headings.forEach(function (heading, column) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = heading.textContent;
      heading.replaceChildren(button);
      button.addEventListener("click", function () {
        const down = heading.getAttribute("aria-sort") === "ascending";
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = Array.from(body.rows);
        rows.sort((a, b) => compare(key(a.cells[column]), key(b.cells[column])) * (down ? -1 : 1));
        body.append(...rows);
      });
    });
  }

  // "T = 2" is one word, not three.
  function words(text) {
    return text.toLowerCase().replace(/\s*=\s*/g, "=");
  }

  function choice(label, values, changed) {
    const select = document.createElement("select");
    select.setAttribute("aria-label", label);
    select.append(new Option(label + ": any", ""));
    values.forEach((value) => select.append(new Option(label + ": " + value, value)));
    select.addEventListener("change", changed);
    return select;
  }

  function filterable(table) {
    const rows = Array.from(table.tBodies[0].rows);
    const bar = document.createElement("div");
    bar.className = "filter";
    const box = document.createElement("input");
    box.type = "search";
    box.placeholder = "filter " + table.dataset.filter + ", such as: untied T = 2";
    box.setAttribute("aria-label", "filter " + table.dataset.filter);
    const count = document.createElement("output");
    const names = Array.from(table.tHead.rows[0].cells).map((cell) => cell.textContent);
    const chosen = ["chart", "free"].filter((name) => names.includes(name)).map(function (name) {
      const column = names.indexOf(name);
      const values = Array.from(new Set(rows.map((row) => row.cells[column].textContent)));
      values.sort((a, b) => compare(isNaN(a) ? a : Number(a), isNaN(b) ? b : Number(b)));
      return { column: column, select: choice(name, values, show) };
    });
    function show() {
      const asked = words(box.value).split(/\s+/).filter(Boolean);
      let left = 0;
      rows.forEach(function (row) {
        const text = words(row.textContent);
        const fits = asked.every((word) => text.includes(word)) &&
          chosen.every((c) => !c.select.value || row.cells[c.column].textContent === c.select.value);
        row.hidden = !fits;
        left += fits ? 1 : 0;
      });
      count.textContent = left + " of " + rows.length;
    }
    box.addEventListener("input", show);
    bar.append(box, ...chosen.map((c) => c.select), count);
    table.parentNode.before(bar);
    show();
  }

  document.addEventListener("DOMContentLoaded", function () {
    document.querySelectorAll("table.sortable").forEach(function (table) {
      if (table.dataset.filter) filterable(table);
      sortable(table);
    });
  });
})();
