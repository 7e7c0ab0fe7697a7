// The picked configuration, and two of them side by side.
import { anatomy, drawTimeline } from "./anatomy.js";
import { coded, recipeOf, value, withUnit } from "./choice.js";
import { runFolder } from "./decision.js";
import { button, byId, definitions, element } from "./dom.js";
import { detail, memory, percent, plusMinus, words } from "./format.js";
import { choose, columns, data, state } from "./state.js";

// A configuration as (name, text) pairs: what was measured, what was chosen, what stayed fixed.
export const measured = (point) => {
  const known = data.measures.filter(({ name }) => value(name, point) !== null);
  const pairs = known.map(({ name, title }) => [title, withUnit(name, value(name, point))]);
  const error = plusMinus(columns.error95[point]);
  return error ? [...pairs, ["speed, ± of another trial", error]] : pairs;
};

const chosen = (point) => columns.choices.map((choices, index) => {
  const { title, values } = data.encodings[index];
  return [title, String(values[choices[point]])];
});

const others = (point) => {
  const { hardware, fixed } = data.environments[columns.environment[point]];
  const details = Object.entries(columns.details)
    .map(([name, column]) => [name, coded(column, point)])
    .filter(([, own]) => own !== null && own !== "");
  return [
    ["effective batch", String(columns.batch[point])], ["training recipe", recipeOf(point)],
    ["hardware", hardware], ["losses", columns.losses[point]],
    ...Object.entries(fixed).map(([name, own]) => [words(name), String(own)]),
    ...details.map(([name, own]) => [words(name), detail(name, own)]),
    ["repeats", String(columns.repeats[point])], ["trial", columns.trial[point]],
  ];
};

const pointOf = (trial) => (trial === "" ? null : columns.trial.indexOf(trial));
const change = (changes) => {
  choose(changes);
  byId("view").dispatchEvent(new Event("change"));
};
export const pick = (point) => change({ picked: columns.trial[point] });

const pinButton = (trial) => {
  if (state.pinned === trial) return button("Unpin", () => change({ pinned: "" }));
  const text = state.pinned === "" ? "Pin, to compare with another" : "Pin this one instead";
  return button(text, () => change({ pinned: trial }));
};

export const showPicked = () => {
  const [point, pinned] = [pointOf(state.picked), pointOf(state.pinned)];
  byId("picked").hidden = point === null;
  byId("pinned").hidden = point === null || pinned === null || point === pinned;
  if (point === null) return;
  const flags = coded(columns.flags, point).map((text) => element("li", {}, `⚠ ${text}`));
  byId("picked").replaceChildren(
    element("h3", {}, columns.label[point]), pinButton(state.picked),
    ...(flags.length ? [element("ul", { class: "flagged" }, ...flags)] : []),
    definitions(measured(point)), ...anatomy(point),
    element("h4", {}, "Configuration"), definitions([...chosen(point), ...others(point)]),
  );
  drawTimeline(point);
  // A is the row that comes first, as in the explanations that were computed with the page.
  if (!byId("pinned").hidden) compare(...[pinned, point].sort((a, b) => a - b));
};

// Figures of both, and B's as a change to A's.
const comparedMeasures = (a, b) => data.measures
  .map(({ name, title }) => ({ name, title, before: value(name, a), after: value(name, b) }))
  .filter(({ before, after }) => before !== null && after !== null)
  .map(({ name, title, before, after }) =>
    [title, withUnit(name, before), withUnit(name, after), before ? percent(after / before) : ""]);

const comparedChoices = (a, b) => {
  const after = chosen(b);
  return chosen(a).map(([name, text], index) => [name, text, after[index][1], ""])
    .filter(([, before, own]) => before !== own);
};

const comparedLayers = (a, b) => {
  const [before, after] = [columns.memoryLayers[a], columns.memoryLayers[b]];
  if (before === null || after === null) return [];
  return data.memoryLayers.map((name, index) => {
    const more = after[index] - before[index];
    const sign = more > 0 ? "+" : "";
    return [`memory: ${name}`, memory(before[index]), memory(after[index]), sign + memory(more)];
  });
};

// The terms of the difference, where they were computed with the page; else the command for them.
const reasons = (a, b) => {
  const text = data.pairs[`${a},${b}`];
  if (text !== undefined) return element("pre", {}, text);
  const trials = `${columns.trial[a]} ${columns.trial[b]}`;
  const command = `python -m orchestrator.explain ${runFolder} ${trials}`;
  return element("p", {}, "Where the difference comes from: ", element("code", {}, command));
};

const UNLIKE = "The two were measured on different hardware or versions, which alone may explain "
  + "everything.";
const compare = (a, b) => {
  const place = byId("pinned");
  if (columns.environment[a] !== columns.environment[b]) {
    place.replaceChildren(element("p", {}, UNLIKE));
    return;
  }
  const heads = ["", `A  ${columns.label[a]}`, `B  ${columns.label[b]}`, "B to A"]
    .map((text) => element("th", { scope: "col" }, text));
  const rows = [...comparedMeasures(a, b), ...comparedChoices(a, b), ...comparedLayers(a, b)];
  const cell = (text) => element("td", { class: "n" }, text);
  const body = rows.map(([name, ...texts]) =>
    element("tr", {}, element("th", { scope: "row" }, name), ...texts.map(cell)));
  const table = element("table", {},
    element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...body));
  const unpin = button("Unpin", () => change({ pinned: "" }));
  place.replaceChildren(element("h3", {}, "Side by side"), unpin,
    element("div", { class: "scroll" }, table), reasons(a, b));
};
