// The table below the chart.
import {
  environments, figure, fronts, hardwareOf, hasOtherRecipe, isBatchMeasured, isRanked, recipeOf,
  score, several, value,
} from "./choice.js";
import { button, byId, element } from "./dom.js";
import { capitalized, plusMinus } from "./format.js";
import { pick } from "./picked.js";
import { columns, data, measures, speed, state } from "./state.js";

const scope = (listed) => {
  const { recipes, ranked, memoryMeaning, errorMeaning } = data.environments[environments()[0]];
  const hasOthers = recipes.filter(Boolean).length > 1;
  let recipe = `Training recipe: ${recipes[state.recipe]}, `;
  if (state.recipe === "mixed") recipe = "All training recipes together, ";
  if (state.recipe === "ranked") recipe = hasOthers ? `Ranked: ${recipes[ranked]}, ` : "";
  const batch = isBatchMeasured() ? `effective batch ${state.batch}` : "any effective batch";
  const titleOf = (name) => measures.get(name).title;
  const count = listed.length.toLocaleString("en");
  const what = state.rows === "all"
    ? `${count} configurations, best in ${titleOf(state.objective)} first`
    : `No other configuration is better in both ${titleOf(state.x)} and ${titleOf(state.y)}`;
  return `${what}. ${capitalized(`${recipe}${batch}`)}. Memory: ${memoryMeaning}. ${errorMeaning}`;
};

const [otherRecipeMark, hostBoundMark, lossMark] = Object.keys(data.marks);
const marksOf = (point) => [
  hasOtherRecipe(point) ? [otherRecipeMark] : [],
  columns.hostBound[point] ? [hostBoundMark] : [],
  columns.lossMismatch[point] ? [lossMark] : [],
].flat();

const markNotes = (listed) => {
  const recipes = [...new Set(listed.filter(hasOtherRecipe).map(recipeOf))].join("; ");
  const used = new Set(listed.flatMap(marksOf));
  return Object.entries(data.marks).filter(([mark]) => used.has(mark)).flatMap(([mark, meaning]) =>
    [`${mark} ${meaning}${mark === otherRecipeMark ? `: ${recipes}` : ""}`, element("br", {})]);
};

// The name of a row, which picks its configuration.
export const named = (point) => element("th", { scope: "row" }, button(columns.label[point], () => {
  pick(point);
  byId("picked").scrollIntoView({ block: "nearest" });
}));

const HEADINGS = { samples_per_second: "samples/s", joules_per_sample: "J/sample" };
// Every measure is a column, as (name, heading, text of a point); the speed's error is one more.
const columnsOf = (listed) => {
  const shown = data.measures.filter(({ name }) => name !== "dollars_per_million" || state.price);
  const hasErrors = listed.some((point) => columns.error95[point] !== null);
  return shown.flatMap(({ name, title }) => {
    const write = (point) => figure(name, value(name, point));
    if (name !== speed) return [[name, HEADINGS[name] ?? title, write]];
    const marked = (point) => [...marksOf(point), write(point)].join(" ");
    const error = ["speed", "±", (point) => plusMinus(columns.error95[point])];
    return [[name, HEADINGS[name], marked], ...(hasErrors ? [error] : [])];
  });
};

let room = 50; // rows that are shown, at most
const ranked = (all) => {
  const points = all.filter(isRanked);
  if (state.rows !== "all") return fronts(points).flat();
  const listed = state.recipe === "ranked" ? [...all] : points;
  return listed.sort((a, b) => score(state.objective, b) - score(state.objective, a));
};

export const showTable = (all) => {
  const listed = ranked(all);
  const shown = listed.slice(0, room);
  // On a narrow screen there are only the measures that were asked for.
  const asked = ["memory_bytes", speed, "speed", state.x, state.y, state.objective];
  const made = columnsOf(shown)
    .map(([name, ...own]) => [asked.includes(name) ? "n" : "n extra", ...own]);
  const hardware = several() ? [["", "hardware", hardwareOf]] : [];
  const heads = [["", "configuration"], ...hardware, ...made]
    .map(([kind, text]) => element("th", { scope: "col", class: kind }, text));
  byId("table").tHead.rows[0].replaceChildren(...heads);
  const cells = (point) => [...hardware, ...made]
    .map(([kind, , write]) => element("td", { class: kind }, write(point)));
  const rowOf = (point) => element("tr", { "data-point": point }, named(point), ...cells(point));
  byId("table").tBodies[0].replaceChildren(...shown.map(rowOf));
  byId("table-title").textContent = state.rows === "all" ? "Configurations" : "Pareto front";
  byId("table-scope").textContent = scope(listed);
  byId("table-notes").replaceChildren(...markNotes(shown).slice(0, -1));
  byId("more").hidden = listed.length <= room;
  const hidden = (listed.length - shown.length).toLocaleString("en");
  byId("more").textContent = `Show 200 more of ${hidden}`;
  byId("more").onclick = () => {
    room += 200;
    showTable(all);
  };
};

export const markChosen = (decisions) => {
  const points = decisions.map((decision) => decision.point);
  for (const row of byId("table").tBodies[0].rows) {
    const isChosen = points.includes(Number(row.dataset.point));
    row.classList.toggle("chosen", isChosen);
    row.setAttribute("aria-current", isChosen);
  }
};
