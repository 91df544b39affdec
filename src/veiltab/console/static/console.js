// What plain pages cannot do: times in the reader's own zone, a slider beside a number, small files
// that are chosen instead of pasted, tables that fit, results that disappear when nobody uses them, and
// saying that an answer does not come.
"use strict";

function localTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const when = new Date(element.dateTime);
    if (!Number.isNaN(when.getTime())) element.title = when.toLocaleString();
  }
}

function sliders(root) {
  for (const slider of root.querySelectorAll("input[data-log-of]")) {
    const field = document.getElementById(slider.dataset.logOf);
    const whole = field.inputMode === "numeric";
    const follow = () => {
      const value = Number.parseFloat(field.value.replaceAll(/[ ,]/g, ""));
      slider.value = value > 0 ? Math.log10(value) : slider.min;
    };
    slider.hidden = false;
    slider.addEventListener("input", () => {
      const value = Number((10 ** slider.value).toPrecision(2));
      // A chance of nothing is where no logarithm goes: the left end of its slider.
      const none = slider.dataset.logOf === "delta" && slider.value === slider.min;
      field.value = none ? 0 : whole ? Math.round(value) : value;
    });
    field.addEventListener("input", follow);
    follow();
  }
}

// A page takes no larger form than a megabyte; letters with accents are longer there.
const LARGEST_FILE = 300000;

// How files of keys begin, locked or not.
const SECRETS = /^\s*\{\s*"(keys"|kind"\s*:\s*"locked-identity")/;

function fileChoosers(root) {
  for (const chooser of root.querySelectorAll("input[data-reads-into]")) {
    chooser.closest(".reads").hidden = false;
    chooser.addEventListener("change", async () => {
      const [file] = chooser.files;
      const tooLarge = file && file.size > LARGEST_FILE;
      const text = !file || tooLarge ? "" : await file.text();
      const isSecret = SECRETS.test(text);
      chooser.setCustomValidity(tooLarge ? "This file is too large to be one of these: choose another one."
        : isSecret ? "This file has secrets in it, and no page may hold them: choose another one." : "");
      chooser.reportValidity();
      if (text && !isSecret) document.getElementById(chooser.dataset.readsInto).value = text;
    });
  }
}

// A table that is too wide for its place becomes a list; without this it scrolls.  The first rows of
// somebody's own table do so too: of forty columns a list would fill many pages.
function stacks(root) {
  for (const place of root.querySelectorAll(".scroll:not(.preview)")) {
    const table = place.querySelector("table:not(.heat, .dots)");
    if (!table || !table.tHead) continue;
    const headings = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    for (const row of [...table.tBodies].flatMap((body) => [...body.rows])) {
      [...row.cells].forEach((cell, at) => {
        cell.dataset.label = headings[at] ?? "";
        if (!cell.querySelector(":scope > .cell")) {
          const inside = document.createElement("span");
          inside.className = "cell";
          inside.append(...cell.childNodes);
          if (inside.hasChildNodes()) cell.append(inside);
        }
      });
    }
    let width = 0;
    new ResizeObserver(() => {
      if (place.clientWidth === width) return;
      width = place.clientWidth;
      place.classList.remove("stacks");
      place.classList.toggle("stacks", table.scrollWidth > width + 1);
    }).observe(place);
  }
}

// A page that waits for something looks again by itself; without this script its <noscript> does.
function lookAgain() {
  const waits = document.querySelector("[data-again]");
  if (waits) setTimeout(() => location.reload(), 1000 * Number(waits.dataset.again));
}

let closing = null;
function closeWhenIdle() {
  const results = document.querySelector("[data-idle]");
  clearTimeout(closing);
  if (!results) return;
  closing = setTimeout(() => {
    const here = location.pathname + location.search;
    location.replace("/idle?next=" + encodeURIComponent(here));
  }, 1000 * Number(results.dataset.idle));
}

// Without this, a part of a page that gets no answer would stand still, and say nothing.  The next
// answer takes the place of what is said.
function say(event, what, todo) {
  const before = document.getElementById("trouble");
  if (before?.firstChild.textContent === what) return; // a page that asks every second says it once
  before?.remove();
  const trouble = document.createElement("div");
  trouble.id = "trouble";
  trouble.className = "care";
  trouble.setAttribute("role", "alert");
  for (const [tag, words] of [["h2", what], ["p", todo]]) {
    const line = document.createElement(tag);
    line.textContent = words;
    trouble.append(line);
  }
  event.detail.target.prepend(trouble);
}

document.addEventListener("htmx:sendError", (event) => say(event, "The console does not answer",
  "It has ended, or was started anew. Nothing that was saved or sent is lost: run veiltab console, and open the link that it prints."));
document.addEventListener("htmx:responseError", (event) => say(event, "There was no answer to that",
  "Load this page again."));

document.addEventListener("DOMContentLoaded", () => {
  localTimes(document);
  sliders(document);
  fileChoosers(document);
  stacks(document);
  lookAgain();
  closeWhenIdle();
});
document.addEventListener("htmx:afterSwap", (event) => {
  localTimes(event.target);
  stacks(event.target);
  closeWhenIdle();
});
