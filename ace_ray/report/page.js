"use strict";
// Sort a table by a column: ascending, descending, as it was. Indented rows stay under their row.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells], blocks = [];
  for (const row of body.rows)
    if (row.dataset.child !== undefined && blocks.length) blocks[blocks.length - 1].push(row);
    else blocks.push([row]);
  const value = (block, i) => {
    const cell = block[0].cells[i], text = cell.textContent.trim().replace(/^–$/, "");
    return cell.dataset.v !== undefined ? Number(cell.dataset.v) : i === 0 ? text : text || null;
  };
  const order = (a, b) => {
    if (a === null || b === null) return 0;
    if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
    return typeof a === "number" ? -1 : 1;
  };
  heads.forEach((head, i) => head.querySelector("button").addEventListener("click", () => {
    const next = { none: "ascending", ascending: "descending", descending: "none" }[head.ariaSort];
    for (const other of heads) other.ariaSort = "none";
    head.ariaSort = next;
    const known = [], empty = [];
    for (const block of blocks) {
      const v = value(block, i), lost = v === null || block[0].cells[i].classList.contains("missing");
      (next !== "none" && lost ? empty : known).push(block);
    }
    const sign = next === "descending" ? -1 : 1;
    if (next !== "none") known.sort((a, b) => sign * order(value(a, i), value(b, i)));
    body.append(...known.flat(), ...empty.flat());
  }));
}
// Paper cannot be unfolded.
addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details:not([open])")) {
    fold.open = true;
    addEventListener("afterprint", () => { fold.open = false; }, { once: true });
  }
});
