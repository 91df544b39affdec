/* What is wrong with how a page lies at its present width; called by tests.support.browsing. */
({ words }) => {
  const found = [];
  const closed = [...document.querySelectorAll("details:not([open])")];
  for (const part of closed) part.open = true;
  const wide = document.documentElement.clientWidth;
  const say = (element) => `${element.tagName.toLowerCase()}${element.id ? "#" + element.id : ""}`
    + `${element.getAttribute("class") ? "." + element.getAttribute("class") : ""}`
    + ` “${(element.textContent || "").trim().slice(0, 40)}”`;
  if (document.documentElement.scrollWidth > wide + 1) {
    found.push(`scrolls sideways, ${document.documentElement.scrollWidth} px wide`);
  }

  const styles = new Map();
  const style = (element) => {
    if (!styles.has(element)) styles.set(element, getComputedStyle(element));
    return styles.get(element);
  };
  const scrolls = (element) => {
    for (let at = element; at; at = at.parentElement) {
      if (["auto", "scroll"].includes(style(at).overflowX) && at !== document.documentElement) return true;
    }
    return false;
  };
  const isHidden = (element) => !element.checkVisibility({ visibilityProperty: true, opacityProperty: true })
    || element.closest(".skip, .unseen, option, datalist, noscript, title, desc, head, script, style");

  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (!node.data.trim() || isHidden(element)) continue;
    range.selectNodeContents(node);
    const boxes = [...range.getClientRects()].filter((box) => box.width > 0 && box.height > 0);
    if (!boxes.length) continue;
    const right = Math.max(...boxes.map((box) => box.right)), left = Math.min(...boxes.map((box) => box.left));
    if (!scrolls(element) && (right > wide + 1 || left < -1)) found.push(`cut off at the edge: ${say(element)}`);
    for (let at = element; at && at !== document.body; at = at.parentElement) {
      const { overflowX, overflowY } = style(at);
      if (!["hidden", "clip"].includes(overflowX) && !["hidden", "clip"].includes(overflowY)) continue;
      const box = at.getBoundingClientRect();
      if (right > box.right + 1 || left < box.left - 1) found.push(`cut off by ${say(at)}`);
    }
    if (!words) continue;
    // A word of usual length; what is longer with all that hangs on it fits nowhere.
    for (const match of node.data.matchAll(/(?<![^\s/–-])[^\s/–-]{3,20}(?![^\s/–-])/gu)) {
      if (!/^[^\p{L}]?[\p{L}’']+[^\p{L}]?$/u.test(match[0])) continue;
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      const lines = new Set([...range.getClientRects()].filter((box) => box.width > 0).map((box) => Math.round(box.top)));
      const tall = Math.max(...lines) - Math.min(...lines);
      if (lines.size > 1 && tall > 6) found.push(`broken word “${match[0]}” in ${say(element)}`);
    }
  }
  for (const field of document.querySelectorAll("input[placeholder]")) {
    if (isHidden(field) || field.value || field.placeholder.length > 40) continue;
    const canvas = document.createElement("canvas").getContext("2d");
    canvas.font = style(field).font;
    const room = field.clientWidth - Number.parseFloat(style(field).paddingLeft) - Number.parseFloat(style(field).paddingRight);
    if (canvas.measureText(field.placeholder).width > room + 1) found.push(`cut off in its field: ${field.placeholder}`);
  }
  for (const list of document.querySelectorAll("select")) {
    const words = list.selectedOptions[0]?.textContent.trim() ?? "";
    if (isHidden(list) || words.length > 30) continue;  // somebody has chosen such a name
    const canvas = document.createElement("canvas").getContext("2d");
    canvas.font = style(list).font;
    if (canvas.measureText(words).width > list.clientWidth - 18
      - Number.parseFloat(style(list).paddingLeft) - Number.parseFloat(style(list).paddingRight)) found.push(`cut off in its list: ${words}`);
  }
  for (const button of document.querySelectorAll("button, select, input:not([type=hidden], [type=checkbox], [type=radio])")) {
    if (isHidden(button)) continue;
    const box = button.getBoundingClientRect();
    if (!scrolls(button) && (box.right > wide + 1 || box.left < -1)) found.push(`cut off at the edge: ${say(button)}`);
  }
  for (const control of document.querySelectorAll("a, button, input:not([type=hidden]), select, textarea, summary")) {
    if (isHidden(control) || control.disabled || control.tabIndex === 0) continue;
    found.push(`the keyboard reaches it never, or out of turn: ${say(control)}`);
  }
  for (const part of closed) part.open = false;
  return [...new Set(found)].slice(0, 8);
}
