// Shows the page's parts anew when the reader changes a control.
import { showBars } from "./anatomy.js";
import { budget, environments, fronts, inView, isBounded, isRanked, span } from "./choice.js";
import { showDecisions } from "./decision.js";
import { byId } from "./dom.js";
import { GIB, memory } from "./format.js";
import { drawLines } from "./lines.js";
import { drawMap, markDecisions } from "./map.js";
import { showPicked } from "./picked.js";
import { changed, choose, columns, data, readAddress, state, writeAddress } from "./state.js";
import { markChosen, named, showTable } from "./table.js";

const SLIDER = 1000; // steps of the slider, whose scale is logarithmic
const showBudget = () => {
  const [least, most] = span();
  const share = Math.log(budget() / least) / Math.log(most / least || 2);
  const size = isBounded() ? memory(budget()) : "any";
  byId("budget").value = isBounded() ? Math.round(SLIDER * share) : SLIDER;
  byId("budget-size").textContent = size;
  byId("budget").setAttribute("aria-valuetext", size);
  for (const chip of document.querySelectorAll("[data-budget]")) {
    chip.setAttribute("aria-pressed", chip.dataset.budget === state.budget);
  }
};

// A budget that a person would name: half GiB from 8 GiB on, eighths from 1 GiB on, else MiB.
const rounded = (bytes) => {
  let grain = 2 ** 20;
  if (bytes >= 8 * GIB) grain = GIB / 2;
  else if (bytes >= GIB) grain = GIB / 8;
  return Math.ceil(bytes / grain) * grain;
};

// Only recipes and batches that the hardware in view was measured with can be chosen.
const offer = () => {
  const own = environments().map((environment) => data.environments[environment]);
  const isOffered = {
    recipe: (value) => Number.isNaN(Number(value)) || own.some(({ recipes }) => recipes[value]),
    batch: (value) => value === "" || own.some(({ batches }) => batches.includes(Number(value))),
  };
  for (const [name, offers] of Object.entries(isOffered)) {
    for (const option of byId(name).options) option.hidden = !offers(option.value);
    if (!offers(state[name])) choose({ [name]: byId(name).options[0].value });
  }
};

// Choices that follow from another one.
const FOLLOWING = {
  objective: () => choose({ y: state.objective, "log-y": "0" }),
  x: () => choose({ "log-x": "0" }),
  y: () => choose({ "log-y": "0" }),
  hardware: () => {
    offer();
    choose({ budget: "", ...(state.hardware === "all" && { colour: "hardware" }) });
  },
};

const show = (names) => {
  const decisions = showDecisions();
  showBudget();
  if (names.some((name) => name !== "budget")) {
    const all = inView();
    const asked = [state.x, state.y, state.objective];
    byId("price-field").hidden = !asked.includes("dollars_per_million");
    const counts = [all, columns.label].map(({ length }) => length.toLocaleString("en"));
    byId("filter-count").textContent = `(${counts.join(" of ")} shown)`;
    showTable(all);
    showBars(fronts(all.filter(isRanked)).flat(), named);
    showPicked();
    drawLines();
    drawMap(all, decisions);
  } else markDecisions(decisions);
  markChosen(decisions);
  writeAddress();
};

const update = () => {
  const names = changed();
  for (const name of names) FOLLOWING[name]?.();
  changed();
  if (names.length) show(names);
};

const open = () => {
  readAddress();
  changed();
  offer();
  changed();
  show(Object.keys(state));
};

byId("view").addEventListener("input", update);
byId("view").addEventListener("change", update);
byId("view").addEventListener("submit", (event) => event.preventDefault());
byId("budget").addEventListener("input", ({ target }) => {
  const [share, [least, most]] = [Number(target.value) / SLIDER, span()];
  choose({ budget: share === 1 ? "" : String(rounded(least * (most / least) ** share)) });
});
for (const chip of document.querySelectorAll("[data-budget]")) {
  chip.addEventListener("click", () => {
    choose({ budget: chip.dataset.budget });
    update();
  });
}
byId("reset").addEventListener("click", () => {
  const filters = Object.keys(state).filter((name) => name.startsWith("show-"));
  choose(Object.fromEntries(filters.map((name) => [name, "1"])));
  update();
});
addEventListener("hashchange", open);
open();
