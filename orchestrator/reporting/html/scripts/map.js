// The map: every configuration in view, the Pareto front with its names, budgets, the decision.
import { draw, overlay } from "./chart.js";
import {
  budget, coded, environments, figureOf, fronts, isBounded, isRanked, span, value,
} from "./choice.js";
import { byId, definitions, element } from "./dom.js";
import { GIB, capitalized, memory } from "./format.js";
import { measured, pick } from "./picked.js";
import { accent, ink, shapes, soft } from "./plot.js";
import { columns, data, measures, state } from "./state.js";

const place = byId("chart");
const isCrowded = columns.label.length > 1500;

// What a measure's figures are divided by, and the name of the unit.
const unitOf = (name) => {
  if (measures.get(name).unit !== "B") return [1, ""];
  return span()[1] >= GIB ? [GIB, ", GiB"] : [2 ** 20, ", MiB"];
};
const coordinates = (points) => Object.fromEntries(["x", "y"].map((axis) => {
  const [unit] = unitOf(state[axis]);
  return [axis, points.map((point) => value(state[axis], point) / unit)];
}));

const budgets = () =>
  [...new Set(environments().flatMap((environment) => data.environments[environment].budgets))];

// An axis from zero, or from its least where it is logarithmic. Budgets that the run names are in,
// but for those so far above all points that these would lie in a corner.
const axisOf = (axis, shown) => {
  const name = state[axis];
  const isMemory = name === "memory_bytes";
  const log = state[`log-${axis}`] === "1";
  const [unit, unitName] = unitOf(name);
  const named = isMemory && data.budget !== null ? budgets().map((bytes) => bytes / unit) : [];
  const last = shown.reduce((high, each) => Math.max(high, each), 0);
  const inside = last ? named.filter((size) => size <= 2 * last) : named;
  const [least, most] = [...shown, ...inside].reduce(([low, high], each) =>
    [Math.min(low, each), Math.max(high, each)], [Infinity, 0]);
  const range = log ? [least / 1.2, most * 1.2] : [0, most * 1.08 || 1];
  const ticks = log && isMemory ? [...Array(24).keys()].map((power) => 2 ** (power - 8)) : null;
  return { title: `${measures.get(name).title}${unitName}`, range, log, ticks };
};

const encodingOf = (name) => data.encodings.find((own) => own.name === name);
const placesOf = (name) => {
  if (name === "recipe") return columns.recipe;
  if (name === "hardware") return columns.environment;
  return columns.choices[data.encodings.findIndex((own) => own.name === name)];
};

const cloud = (name, points, attributes, size = isCrowded ? 3 : 4.5) => {
  const places = placesOf(state.marker);
  const own = places && points.map((point) => shapes[places[point] % shapes.length]);
  const edge = isCrowded ? {} : { stroke: "#ffffff", "stroke-width": 0.5 };
  return {
    kind: "points", name, ids: points, size, shapes: own, ...coordinates(points),
    attributes: { "fill-opacity": 0.85, ...edge, ...attributes },
  };
};

// A cloud for each colour: a value of an axis, or a band of its values.
const clouds = (points) => {
  const encoding = encodingOf(state.colour);
  if (encoding === undefined) return [cloud("configurations", points, { fill: data.palette[0] })];
  const places = placesOf(state.colour);
  return encoding.names.map((name, index) => cloud(
    name, points.filter((point) => encoding.of[places[point]] === index),
    { fill: encoding.colours[index] },
  ));
};

const frontLines = (name, points, attributes) => fronts(points).map((own) =>
  ({ kind: "line", name, isStepped: true, ...coordinates(own), attributes }));

const memoryAxis = () => ["x", "y"].find((axis) => state[axis] === "memory_bytes");
const budgetLines = (x, y) => {
  const axis = memoryAxis();
  if (axis === undefined) return [[], []];
  const at = (bytes) => bytes / unitOf("memory_bytes")[0];
  const most = (axis === "x" ? x : y).range[1];
  const sizes = budgets().filter((bytes) => at(bytes) <= most).sort((a, b) => a - b);
  const marks = sizes.map((bytes) => ({
    kind: "rule", axis, at: at(bytes), attributes: { stroke: accent, "stroke-opacity": 0.45 },
  }));
  // A size stands at its line's foot, left of it at the right edge.
  const texts = sizes.map((bytes) => ({
    x: x.range[0], y: y.range[0], [axis]: at(bytes), text: memory(bytes), fill: accent,
    places: [[4, -4, "start"], [-4, -4, "end"]],
  }));
  return [marks, texts];
};

// Names for the front, most important first: the decision, its ends, then from left to right.
// Above and left of a front nothing lies; only the most important names may stand right of it.
const frontNames = (points, decisions) => {
  const own = fronts(points).flat();
  const chosen = decisions.map((decision) => decision.point);
  const listed = [...new Set([...chosen, ...own.slice(-1), ...own])]
    .filter((point) => points.includes(point));
  const { x, y } = coordinates(listed);
  return listed.map((point, index) => ({
    x: x[index], y: y[index], text: columns.short[point],
    places: [[-8, -5, "end"], ...(index < 3 ? [[10, 16, "start"]] : [])],
  }));
};
const MAX_NAMES = 7;

const tip = ({ id }) => {
  if (id === null) return null;
  const listed = [...measured(id), ["effective batch", String(columns.batch[id])]];
  const flags = coded(columns.flags, id).map((flag) => element("p", {}, `⚠ ${flag}`));
  return [element("strong", {}, columns.label[id]), definitions(listed), ...flags];
};

export const drawMap = (all, decisions) => {
  const isKnown = (point) => value(state.x, point) !== null && value(state.y, point) !== null;
  const shown = all.filter(isKnown);
  const [ranked, others] = [shown.filter(isRanked), shown.filter((point) => !isRanked(point))];
  const [x, y] = ["x", "y"].map((axis) => axisOf(axis, coordinates(shown)[axis]));
  const [rules, sizes] = budgetLines(x, y);
  const across = "Pareto front across recipes";
  const front = state.recipe === "mixed" ? across : "Pareto front";
  const gray = { fill: soft, "fill-opacity": 0.6 };
  const dotted = { stroke: soft, "stroke-width": 1.4, "stroke-dasharray": "1 2" };
  const marks = [
    ...(others.length ? [cloud("other recipes", others, gray, isCrowded ? 2.5 : 3.5)] : []),
    ...clouds(ranked).filter((own) => own.ids.length > 0),
    ...(others.length ? frontLines(across, shown, dotted) : []),
    ...frontLines(front, ranked, { stroke: ink, "stroke-width": 2 }),
    ...rules,
  ];
  draw(place, {
    x, y, marks, tip, pick,
    texts: [...sizes, ...frontNames(ranked, decisions)], most: sizes.length + MAX_NAMES,
    view: [state.hardware, state.x, state.y, x.log, y.log].join(),
  });
  describe();
  markDecisions(decisions);
};

const describe = () => {
  const signs = [];
  if (state.colour) signs.push(`Colours: ${encodingOf(state.colour).title}. `);
  if (state.marker) {
    const { title, values } = encodingOf(state.marker);
    const listed = values.map((each, index) => `${shapes[index % shapes.length]} ${each}`);
    signs.push(`Shapes: ${title}, ${listed.join(", ")}. `);
  }
  byId("chart-note").textContent = `${signs.join("")}Pick a point for its whole configuration.`;
  const [x, y] = [state.x, state.y].map((name) => measures.get(name).title);
  byId("map-title").textContent = capitalized(`${x} against ${y}`);
};

// What the budget moves: the rings around the decisions, and its own line. A decision at an
// effective batch that was not measured has no point.
export const markDecisions = (decisions) => {
  const [x, y] = [state.x, state.y];
  const known = decisions.filter((own) => (figureOf(own, x) ?? figureOf(own, y) ?? null) !== null);
  const ring = {
    kind: "points", size: 9, attributes: { stroke: ink, "stroke-width": 2.5, class: "ring" },
    x: known.map((own) => figureOf(own, x) / unitOf(x)[0]),
    y: known.map((own) => figureOf(own, y) / unitOf(y)[0]),
  };
  const limit = {
    kind: "rule", axis: memoryAxis(), at: budget() / unitOf("memory_bytes")[0],
    attributes: { stroke: accent, "stroke-width": 1.5, "stroke-dasharray": "5 3", class: "limit" },
  };
  overlay(place, [ring, ...(isBounded() && limit.axis ? [limit] : [])]);
};
