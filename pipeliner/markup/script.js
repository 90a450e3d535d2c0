// Sorts tables by their headings, and lights what belongs together in a kernel: what is pointed at
// has words in data-hit, what lights has one of them in data-in. A page may hold this twice.
(() => {
  "use strict";
  const VALUE = new Intl.Collator("en", { numeric: true });

  function key(row, at) {
    const cell = row.cells[at];
    const text = cell.textContent.trim();
    if (cell.dataset.key !== undefined) return Number(cell.dataset.key);
    if (text === "" || text === "-") return null;
    return /^-?[\d.]+ *[%x]?$/.test(text) ? parseFloat(text) : text;
  }

  function sort(heading) {
    const row = heading.parentElement;
    const at = [...row.cells].indexOf(heading);
    const body = heading.closest("table").tBodies[0];
    const rows = [...body.rows].map((each) => [key(each, at), each]);
    const words = rows.some(([value]) => typeof value === "string");
    const now = heading.getAttribute("aria-sort");
    const down = now ? now === "ascending" : !words; // numbers begin with the largest
    rows.sort(([one], [two]) => {
      if (one === null || two === null) return (one === null) - (two === null);
      const order = words ? VALUE.compare(one, two) : one - two;
      return down ? -order : order;
    });
    for (const cell of row.cells) cell.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows.map(([, each]) => each));
  }

  function buttons() {
    for (const heading of document.querySelectorAll(".pipeliner table.sortable thead th")) {
      if (heading.querySelector("button") || !heading.textContent.trim()) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
    }
  }

  buttons();
  if (window.pipelinerShown) return;
  window.pipelinerShown = true;

  let pointed = null;
  let lit = [];

  function light(trigger) {
    if (trigger === pointed) return;
    for (const each of lit) each.classList.remove("lit");
    const before = pointed && pointed.closest(".linked");
    if (before && before !== (trigger && trigger.closest(".linked"))) say(before, "");
    [pointed, lit] = [trigger, []];
    if (!trigger) return;
    const kernel = trigger.closest(".linked");
    const words = trigger.dataset.hit.split(" ").map((word) => `[data-in~="${CSS.escape(word)}"]`);
    lit = [...kernel.querySelectorAll(words.join())];
    for (const each of lit) each.classList.add("lit");
    const lines = lit.filter((each) => each.matches("pre span"));
    const count = lines.reduce((sum, each) => sum + each.textContent.trimEnd().split("\n").length, 0);
    const name = trigger.dataset.name || trigger.getAttribute("aria-label") || "this";
    say(kernel, `${name}: ${count} ${count === 1 ? "line" : "lines"} of CUDA`);
    const box = kernel.querySelector(".code");
    if (box && lines.length && !box.contains(trigger)) {
      const [first, top] = [lines[0].getBoundingClientRect(), box.getBoundingClientRect()];
      if (first.top < top.top || first.top > top.bottom - 20)
        box.scrollTop += first.top - top.top - box.clientHeight / 4;
    }
  }

  function say(kernel, text) {
    const line = kernel.querySelector(".says");
    if (!line) return;
    line.dataset.still = line.dataset.still || line.textContent;
    line.textContent = text || line.dataset.still;
  }

  function trigger(event) {
    const found = event.target.closest && event.target.closest(".linked [data-hit]");
    return found || null;
  }

  function lines(event) {
    const found = trigger(event);
    if (!found || found.closest(".code")) return;
    light(found);
    const first = lit.find((each) => each.matches("pre span"));
    if (!first) return;
    for (let each = first; each; each = each.parentElement)
      if (each.tagName === "DETAILS") each.open = true;
    first.scrollIntoView({ block: "center", inline: "nearest" });
  }

  document.addEventListener("pointerover", (event) => light(trigger(event)));
  document.addEventListener("focusin", (event) => light(trigger(event)));
  document.addEventListener("focusout", () => light(null));
  document.addEventListener("click", (event) => {
    const heading = event.target.closest && event.target.closest(".pipeliner table.sortable thead th");
    if (heading && event.target.closest("button")) sort(heading);
    else lines(event);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.matches && event.target.matches("svg [data-hit]"))
      lines(event);
  });
  function open() {
    const named = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (named && named.tagName === "DETAILS") named.open = true;
  }
  addEventListener("hashchange", open);
  open();
})();
