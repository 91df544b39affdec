// What plain pages cannot do: times in the reader's own zone, a slider beside a number, small files
// that are chosen instead of pasted, and results that disappear when nobody uses them.
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
    const shown = document.getElementById("shown");
    const follow = () => {
      const value = Number.parseFloat(field.value);
      if (value > 0) slider.value = Math.log10(value);
      if (shown) shown.value = field.value;
    };
    slider.addEventListener("input", () => {
      field.value = Number((10 ** slider.value).toPrecision(2));
      if (shown) shown.value = field.value;
    });
    field.addEventListener("input", follow);
    follow();
  }
}

function fileChoosers(root) {
  for (const chooser of root.querySelectorAll("input[data-reads-into]")) {
    chooser.closest(".reads").hidden = false;
    chooser.addEventListener("change", async () => {
      const [file] = chooser.files;
      if (file) document.getElementById(chooser.dataset.readsInto).value = await file.text();
    });
  }
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

document.addEventListener("DOMContentLoaded", () => {
  localTimes(document);
  sliders(document);
  fileChoosers(document);
  closeWhenIdle();
});
document.addEventListener("htmx:afterSwap", (event) => { localTimes(event.target); closeWhenIdle(); });
