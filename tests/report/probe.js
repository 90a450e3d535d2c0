// Looks at the page as a reader does, and tells the page around it what is wrong, check by check.
addEventListener("load", () => {
  const found = {};
  const all = (selector, root) => [...(root || document).querySelectorAll(selector)];
  const name = (each) => `${each.tagName} ${(each.textContent || "").trim().slice(0, 40)}`;

  function parts(colour) {
    const [red, green, blue, alpha] = colour.match(/[\d.]+/g).map(Number);
    const unit = colour.startsWith("color(") ? 255 : 1;
    return [red * unit, green * unit, blue * unit, alpha === undefined ? 1 : alpha];
  }

  function ground(each) {
    const layers = [];
    for (let at = each; at; at = at.parentElement) {
      const layer = parts(getComputedStyle(at).backgroundColor);
      if (layer[3]) layers.push(layer);
      if (layer[3] === 1) break;
    }
    return layers.reverse().reduce(
      (below, [red, green, blue, alpha]) =>
        [red, green, blue].map((value, at) => value * alpha + below[at] * (1 - alpha)),
      [255, 255, 255],
    );
  }

  function luminance(colour) {
    const [red, green, blue] = colour.slice(0, 3).map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  }

  function faint() {
    const texts = all("h1, h2, h3, h4, p, a, dt, dd, th, td, caption, summary, button, span, strong");
    return texts.filter((each) => each.offsetParent && each.textContent.trim()).filter((each) => {
      const ink = luminance(parts(getComputedStyle(each).color));
      const [dark, light] = [ink, luminance(ground(each))].sort((one, two) => one - two);
      return (light + 0.05) / (dark + 0.05) < 4.5;
    }).map(name);
  }

  function column(table, at) {
    return all("tbody tr", table).map((row) => parseFloat(row.cells[at].textContent));
  }

  const ordered = (values, sign) => values.every((value, at) => !at || sign * (value - values[at - 1]) >= 0);

  function sorting() {
    const table = all("table.sortable").find((each) => each.tBodies[0].rows.length > 1);
    const heading = all("thead th", table).find((each) => /^us/.test(each.textContent));
    const [at, button] = [heading.cellIndex, heading.querySelector("button")];
    const rows = table.tBodies[0].rows.length;
    button.focus();
    if (document.activeElement !== button) return "the heading has no focus";
    button.click();
    if (!ordered(column(table, at), -1)) return `not descending: ${column(table, at)}`;
    if (heading.getAttribute("aria-sort") !== "descending") return "aria-sort is not descending";
    button.click();
    if (!ordered(column(table, at), 1)) return `not ascending: ${column(table, at)}`;
    if (heading.getAttribute("aria-sort") !== "ascending") return "aria-sort is not ascending";
    all("thead th button", table)[0].click();
    if (heading.hasAttribute("aria-sort")) return "two columns are sorted";
    return table.tBodies[0].rows.length === rows ? "" : "rows are lost";
  }

  // What lights with each trigger of a kernel, by the op or stage that its lines say they are of.
  function lighting(kernel, point) {
    const wrong = [];
    const colour = (each) => getComputedStyle(each).backgroundColor;
    const plain = new Set(all("pre span", kernel).filter((each) => !each.matches(".lit")).map(colour));
    const lines = () => all("pre span.lit", kernel).map((each) => each.title);
    for (const trigger of all(".ops button", kernel)) {
      const op = trigger.textContent;
      point(trigger);
      const other = lines().filter((title) => !new RegExp(`^${op}(\\.[a-z]+)?,`).test(title));
      if (!lines().length || other.length) wrong.push(`${op}: ${lines().length} lines, not ${other}`);
      if (!kernel.querySelector(".says").textContent.includes(op)) wrong.push(`${op} is not said`);
      const row = !kernel.querySelector("svg") || all("svg g.lit", kernel).length;
      if (!op.includes(".") && !row) wrong.push(`${op} has no row of the timeline`);
    }
    let slots = 0;
    for (const trigger of all(".chip", kernel)) {
      const stage = trigger.dataset.name;
      point(trigger);
      const other = lines().filter((title) => !title.includes(`, ${stage},`));
      if (!lines().length || other.length) wrong.push(`${stage}: ${lines().length}, not ${other}`);
      for (const each of all("pre span.lit", kernel))
        if (plain.has(colour(each))) wrong.push(`${stage} lights by no colour`);
      slots += all(".slot.lit", kernel).length;
    }
    if (!slots) wrong.push("no stage lights a slot");
    for (const row of all('svg g[data-hit*="o"]', kernel)) {
      const op = row.ariaLabel.split(",")[0];
      point(row);
      if (!lines().length || lines().some((title) => !title.startsWith(op.split(".")[0])))
        wrong.push(`row of ${op}: ${lines()}`);
    }
    return wrong;
  }

  for (const each of all("details")) each.open = true;
  found.overflow = document.documentElement.scrollWidth > innerWidth
    ? all("body *").filter((each) => !each.closest(".wide, svg") && each.scrollWidth > innerWidth).map(name)
    : [];
  found.width = innerWidth;
  found.height = document.documentElement.scrollHeight;
  if (all("table.sortable").some((each) => each.tBodies[0].rows.length > 1)) found.sort = sorting();
  const kernels = all(".linked").filter((each) => each.querySelector(".code"));
  if (kernels.length) {
    const hover = (each) => each.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
    found.hover = kernels.flatMap((kernel) => lighting(kernel, hover));
    found.focus = kernels.flatMap((kernel) => lighting(kernel, (each) => each.focus()));
    document.activeElement.blur();
    found.left = all(".lit").map(name);
  }
  found.folded = all(".code summary").map((each) => each.textContent.split(":")[0]);
  found.unnamed = [
    ...all("button, a, summary, [role=button]").filter((each) => !each.textContent.trim() && !each.ariaLabel),
    ...all("svg").filter((each) => !each.querySelector("title")),
    ...all("table").filter((each) => !each.caption || !each.caption.textContent.trim()),
    ...all("th").filter((each) => !each.scope),
    ...all("[role=region]").filter((each) => !each.ariaLabel || each.tabIndex !== 0),
    ...all("img"),
  ].map(name);
  const ids = all("[id]").map((each) => each.id);
  found.twice = ids.filter((id, at) => ids.indexOf(id) !== at);
  const levels = all("h1, h2, h3, h4").map((each) => Number(each.tagName[1]));
  found.levels = levels.filter((level, at) => level - (levels[at - 1] || 0) > 1);
  found.language = document.documentElement.lang;
  found.faint = faint();
  for (const sheet of document.styleSheets)
    for (const rule of sheet.cssRules)
      if (rule instanceof CSSMediaRule && rule.media.mediaText.includes("dark")) rule.media.mediaText = "all";
  found.dark = luminance(ground(document.body)) < 0.1;
  found.faint_in_the_dark = faint();
  parent.postMessage({ name: window.name, found }, "*");
});
