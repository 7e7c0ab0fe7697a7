// What follows from the reader's choices: the configurations in view, their Pareto fronts, and the
// decisions, which were made in Python, by what `recommend` decides with. Here they are looked up.
import { columns, data, measures, speed, state } from "./state.js";
import { digits, memory } from "./format.js";

const environmentOf = (point) => data.environments[columns.environment[point]];
export const hardwareOf = (point) => environmentOf(point).hardware;
export const recipeOf = (point) => environmentOf(point).recipes[columns.recipe[point]];

// A column of few different values holds these, and each row's place in them.
export const coded = (column, point) =>
  (Array.isArray(column) ? column[point] : column.of[column.at[point]]);

const cost = (samplesPerSecond) =>
  (state.price === "" ? null : state.price / 3600 / samplesPerSecond * 1e6);
export const value = (name, point) => {
  if (name === "dollars_per_million") return cost(measures.get(speed).values[point]);
  return measures.get(name).values[point];
};
const isBytes = (name) => measures.get(name).unit === "B";
export const figure = (name, own) => {
  if (own === null) return "–";
  return isBytes(name) ? memory(own) : digits(own);
};
export const withUnit = (name, own) =>
  (isBytes(name) ? memory(own) : `${digits(own)} ${measures.get(name).unit}`);

// More is better, whatever the measure.
export const score = (name, point) => {
  const own = value(name, point);
  if (own === null) return -Infinity;
  return measures.get(name).higher ? own : -own;
};

export const environments = () => {
  if (state.hardware === "all") return [...data.environments.keys()];
  return [Number(state.hardware)];
};
export const several = () => environments().length > 1;

// A batch that was not measured is a question for the decision, not a filter of the map.
export const isBatchMeasured = () => columns.batch.includes(Number(state.batch));

export const inView = () => {
  const wanted = environments();
  const batch = isBatchMeasured() ? Number(state.batch) : null;
  const hidden = columns.choices.map((_, axis) =>
    data.encodings[axis].values.map((_each, index) => state[`show-${axis}-${index}`] === "0"));
  return [...columns.label.keys()].filter((point) => wanted.includes(columns.environment[point])
    && (batch === null || columns.batch[point] === batch)
    && !(state.parity === "1" && columns.lossMismatch[point])
    && !columns.choices.some((choices, axis) => hidden[axis][choices[point]]));
};

const rankedRecipe = (environment) => {
  if (["ranked", "mixed"].includes(state.recipe)) return data.environments[environment].ranked;
  return Number(state.recipe);
};
export const hasOtherRecipe = (point) =>
  columns.recipe[point] !== rankedRecipe(columns.environment[point]);
export const isRanked = (point) => state.recipe === "mixed" || !hasOtherRecipe(point);

// The points that no other beats in both measures: sorted by one, each better in the other.
const front = (points) => {
  const [x, y] = [state.x, state.y];
  const known = points.filter((point) => value(x, point) !== null && value(y, point) !== null);
  known.sort((a, b) => score(x, b) - score(x, a) || score(y, b) - score(y, a));
  const kept = [];
  for (const point of known) {
    const last = kept.at(-1);
    const isBetter = last === undefined || score(y, point) > score(y, last);
    if (isBetter || [x, y].every((name) => score(name, point) === score(name, last))) {
      kept.push(point);
    }
  }
  return kept;
};

// Environments are never ranked together: each has a front of its own.
export const fronts = (points) => environments().map((environment) =>
  front(points.filter((point) => columns.environment[point] === environment)));

export const budget = () => Number(state.budget) || Infinity;
export const isBounded = () => state.budget !== "";

// The decisions of the question by rising memory; null: the page does not hold its answer.
export const stepsOf = (environment, recipe = state.recipe) => {
  const ranked = recipe === "ranked" ? data.environments[environment].ranked : recipe;
  const { steps, candidates } = data.environments[environment].decisions;
  const listed = steps[`${state.objective}/${state.batch || "any"}/${ranked}`];
  return listed?.map(([least, index]) => ({ least, ...candidates[index] })) ?? null;
};
export const decisionOf = (steps) => steps?.findLast((step) => step.least <= budget()) ?? null;

// The figure of a decision in a measure; a price is the reader's.
export const figureOf = (decision, name = state.objective) => {
  if (name === "memory_bytes") return decision.memory;
  if (name === "dollars_per_million") return cost(decision.figures[speed]);
  return decision.figures[name];
};

// The least and the most memory of the hardware in view.
export const span = () => {
  const wanted = environments();
  const sizes = measures.get("memory_bytes").values
    .filter((_, point) => wanted.includes(columns.environment[point]));
  return sizes.reduce(([least, most], size) =>
    [Math.min(least, size), Math.max(most, size)], [Infinity, 1]);
};
