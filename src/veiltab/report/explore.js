/* The explorer of the joint table: order, filter, details of a row, and a file of its cells.
   Without it the page shows the same table as it is. */
"use strict";
(() => {
  const whole = JSON.parse(document.getElementById("cells").textContent);
  const table = document.querySelector("#joint table");
  const [filter, order, found] = ["filter", "order", "found"].map((id) => document.getElementById(id));
  const numbers = ["share", "standard_error", "sampling_error", "privacy_error", "low", "high"];
  const headings = [...table.tBodies];
  const title = table.tHead.rows[0].cells[0].firstElementChild;
  const titleInOrder = title.textContent;
  const sorted = document.createElement("tbody");
  table.append(sorted);
  const cells = headings.flatMap((body) => [...body.rows])
    .filter((row) => row.cells[0].scope === "row")
    .map((row, place) => {
      const names = whole.rows[place].slice(0, whole.names.length);
      const values = whole.rows[place].slice(whole.names.length);
      const cell = { row, place, names, body: row.parentNode, name: row.cells[0].firstElementChild };
      numbers.forEach((number, at) => { cell[number] = values[at]; });
      cell.width = cell.low === null || cell.high === null ? Infinity : cell.high - cell.low;
      cell.words = names.join(" ").toLowerCase();
      return cell;
    });
  const byRow = new Map(cells.map((cell) => [cell.row, cell]));

  const least = (number) => (number === null ? -Infinity : number);
  const orders = {
    study: (a, b) => a.place - b.place,
    largest: (a, b) => least(b.share) - least(a.share) || a.place - b.place,
    smallest: (a, b) => least(a.share) - least(b.share) || a.place - b.place,
    certain: (a, b) => a.width - b.width || a.place - b.place,
  };

  function shown() {
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    return cells.filter((cell) => wanted.every((word) => cell.words.includes(word)))
      .sort(orders[order.value]);
  }

  function fullName(cell) {
    const name = document.createElement("bdi");
    name.textContent = cell.names.join(" · ");
    return name;
  }

  function show() {
    const kept = shown();
    const visible = new Set(kept);
    const inOrder = order.value === "study";
    for (const cell of cells) {
      cell.row.hidden = !visible.has(cell);
      cell.row.cells[0].replaceChildren(inOrder ? cell.name : fullName(cell));
    }
    title.textContent = inOrder ? titleInOrder : whole.names.join(" · ");
    for (const cell of inOrder ? cells : kept) (inOrder ? cell.body : sorted).append(cell.row);
    for (const body of headings) body.hidden = ![...body.rows].some((row) => byRow.has(row) && !row.hidden);
    found.value = kept.length === cells.length ? `${cells.length} cells`
      : `${kept.length} of ${cells.length} cells`;
  }

  const percent = (number) => (number === null ? "–" : `${(100 * number).toFixed(3)}%`);
  const card = document.createElement("div");
  card.className = "hover";
  card.setAttribute("aria-hidden", "true");
  card.hidden = true;
  document.body.append(card);

  function details(event) {
    const cell = byRow.get(event.target.closest("tr"));
    card.hidden = !cell;
    if (!cell) return;
    const lines = [
      ...whole.names.map((name, at) => `${name}: ${cell.names[at]}`),
      `share ${percent(cell.share)}, interval ${percent(cell.low)} to ${percent(cell.high)}`,
      `standard error ${percent(cell.standard_error)}: sampling ${percent(cell.sampling_error)},`
        + ` privacy ${percent(cell.privacy_error)}`,
    ];
    card.replaceChildren(...lines.map((line) => {
      const shownLine = document.createElement("p");
      shownLine.dir = "auto";
      shownLine.textContent = line;
      return shownLine;
    }));
    const place = card.getBoundingClientRect();
    card.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - place.width - 4))}px`;
    const below = event.clientY + 18;
    card.style.top = `${below + place.height < innerHeight ? below : Math.max(4, event.clientY - place.height - 12)}px`;
  }

  /* A spreadsheet would take a name such as =A1 for a formula, and compute it. */
  const number = "[0-9][0-9.,]*(e[+-]?[0-9]+)?";
  const harmless = new RegExp(`^[+-]?(${number}(%| to <-?${number})?)?$`);
  const plain = (name) => (harmless.test(name) ? name : name.replace(/(^|;[ ;"]*)([=@+＝＠＋－-])/g, "$1'$2"));

  function download() {
    const quoted = (value) => (value === null ? "" : typeof value === "number" ? String(value)
      : `"${plain(value).replaceAll('"', '""')}"`);
    const lines = [[...whole.names, ...numbers, "status"],
      ...shown().map((cell) => [...whole.rows[cell.place], whole.status])];
    const text = lines.map((line) => line.map(quoted).join(",")).join("\r\n") + "\r\n";
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv" }));
    link.download = "cells.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  filter.addEventListener("input", show);
  order.addEventListener("change", show);
  document.getElementById("download").addEventListener("click", download);
  table.addEventListener("pointermove", details);
  table.addEventListener("pointerdown", details);
  table.addEventListener("pointerleave", () => { card.hidden = true; });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") card.hidden = true; });
  show();
  document.getElementById("explore").hidden = false;
})();
