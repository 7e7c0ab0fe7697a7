// The decision in words, and the command that says more.
import { GIB, digits, memory, plusMinus } from "./format.js";
import {
  budget, decisionOf, environments, figureOf, isBounded, several, span, stepsOf, withUnit,
} from "./choice.js";
import { byId, element } from "./dom.js";
import { columns, data, measures, speed, state } from "./state.js";

const figures = (decision) => {
  const [least, most] = decision.inferred ? ["at least ", "at most "] : ["", ""];
  const own = figureOf(decision);
  const isOther = state.objective !== speed && own !== null;
  const isCertain = decision.point === null || decision.inferred;
  const error = isCertain ? "" : plusMinus(columns.error95[decision.point]);
  return [
    isOther ? `${withUnit(state.objective, own)}, ` : "",
    `${least}${withUnit(speed, decision.figures[speed])}`,
    error && ` (${error})`,
    ` in ${most}${memory(decision.memory)}`,
  ].join("");
};

const asked = (environment) => {
  const where = several() ? ` on ${data.environments[environment].hardware}` : "";
  const batch = state.batch && `, effective batch ${state.batch}`;
  const within = isBounded() ? `in ${memory(budget())}` : "of all";
  return `${measures.get(state.objective).best}${where} ${within}${batch}`;
};

const NOT_HERE = "Not in this page: the command below answers it";
const ONLY_THIS_FITS = "Fits where the baseline does not";
const verdict = (environment, steps, decision) => {
  const question = element("span", {}, asked(environment));
  if (decision === null) {
    const text = steps === null ? NOT_HERE : "Nothing measured fits";
    return element("p", {}, question, element("strong", {}, text));
  }
  // What is faster in less memory is a gain, whether or not the baseline fits.
  const compares = decision.faster || !isBounded() || decision.defaultMemory <= budget();
  // A number and its sign stay on one line.
  const gain = compares ? decision.gain.replace(/ (?=[%×])/g, "\u00a0") : ONLY_THIS_FITS;
  const sign = element("b", { class: decision.faster ? "gain" : "gain slower" }, gain);
  return element("p", {},
    ...(gain ? [sign] : []), question, element("strong", {}, decision.label),
    element("span", { class: "figures" }, figures(decision)),
    element("span", { class: "default" }, decision.default));
};

// "51 % more samples per second"
const gainOver = (other, decision) => {
  const ratio = figureOf(other) / figureOf(decision);
  const noun = measures.get(state.objective).title;
  if (ratio >= 2) return `${digits(ratio)} times the ${noun}`;
  return `${Math.round(100 * Math.abs(ratio - 1))} % ${ratio > 1 ? "more" : "less"} ${noun}`;
};

// What fits under one cap fits under all larger ones.
const capCheck = (decision) => {
  const checks = columns.capChecks[decision.point] ?? [];
  const passed = checks.filter(([cap, fitted]) => fitted && cap <= budget());
  if (passed.length === 0 || decision.inferred) {
    return "Fits by its uncapped peak; not verified under a memory cap of this budget.";
  }
  const [cap, , samples, bytes] = passed.sort(([a], [b]) => b - a)[0];
  const figure = withUnit(speed, samples);
  return `Verified under a memory cap of ${memory(cap)}: ${figure}, ${memory(bytes)}.`;
};

const MENTIONED = 0.02; // a gain below this share is not worth more memory
const isWorthMore = (other, decision) => {
  if (decision === null) return true;
  const [before, after] = [figureOf(decision), figureOf(other)];
  if (before === null || after === null) return false;
  const gain = measures.get(state.objective).higher ? after - before : before - after;
  return gain > MENTIONED * Math.abs(before);
};

// The next larger memory at which the decision gets better.
const moreMemory = (steps, decision) => {
  const step = steps.find((own) => own.least > budget() && isWorthMore(own, decision));
  if (step === undefined) return [];
  const [size, limit] = [memory(step.least), memory(budget())];
  const [number, unit] = limit.split(" ");
  const instead = size.endsWith(` ${unit}`) ? number : limit;
  const gain = decision === null ? "" : `${gainOver(step, decision)}: `;
  return [`With ${size} instead of ${instead}: ${gain}${step.label}`];
};

const otherRecipe = (environment, decision) => {
  const other = decisionOf(stepsOf(environment, "mixed"));
  if (state.recipe === "mixed" || !other?.otherRecipe || !isWorthMore(other, decision)) return [];
  const gain = decision === null ? "" : `${gainOver(other, decision)}, `;
  const how = `${other.label} (trains differently: ${other.recipe})`;
  return [`† With another training recipe ${gain}${figures(other)}: ${how}`];
};

const asides = (environment, steps, decision) => {
  if (steps === null) return [];
  const lines = otherRecipe(environment, decision);
  const isLimit = isBounded() && budget() < data.environments[environment].deviceBytes;
  if (decision !== null && isLimit) lines.push(capCheck(decision));
  if (isBounded()) lines.push(...moreMemory(steps, decision));
  if (decision !== null) lines.push(...decision.notes.map((note) => `⚠ ${note}`));
  const prefix = several() ? `${data.environments[environment].hardware}: ` : "";
  return lines.map((line) => element("li", {}, prefix + line));
};

// Shows the decisions; returns those that there are.
export const showDecisions = () => {
  const answers = environments().map((environment) => {
    const steps = stepsOf(environment);
    return { environment, steps, decision: decisionOf(steps) };
  });
  byId("decision").replaceChildren(...answers.map((own) =>
    verdict(own.environment, own.steps, own.decision)));
  byId("asides").replaceChildren(...answers.flatMap((own) =>
    asides(own.environment, own.steps, own.decision)));
  showCommand();
  return answers.map(({ decision }) => decision).filter((decision) => decision !== null);
};

// This page lies in the run's folder, whose path only its own address knows. Characters that would
// act on a terminal are left out of what a reader copies into one.
const folder = () => {
  if (location.protocol !== "file:") return `runs/${data.name || "NAME"}`;
  return decodeURIComponent(location.pathname).replace(/\/[^/]*$/, "") || "/";
};
const quoted = (path) => {
  if (/^[\w@%+=:,./][\w@%+=:,./-]*$/.test(path)) return path;
  return `'${path.replaceAll("'", "'\\''")}'`;
};
export const runFolder = quoted(folder().replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, ""));

// A size as the command reads it, to a millionth of its unit.
const exact = (bytes) => {
  const [unit, name] = bytes < GIB ? [2 ** 20, "MiB"] : [GIB, "GiB"];
  return `${Number((bytes / unit).toFixed(6))}${name}`;
};
const command = () => [
  "python -m orchestrator.recommend", runFolder,
  ...(isBounded() ? [`--memory ${exact(budget())}`] : []),
  ...(state.batch ? [`--effective-batch ${state.batch}`] : []),
  ...(state.objective === speed || isUnpriced() ? [] : [`--objective ${state.objective}`]),
  ...(state.price ? [`--price-per-hour ${state.price}`] : []),
  ...(state.recipe === "ranked" ? [] : ["--all-training-recipes"]),
  "--export train",
].join(" ");
const isUnpriced = () => state.objective === "dollars_per_million" && !state.price;

const commandNotes = () => {
  const [{ hardware, id }] = data.environments;
  const filters = Object.entries(state).filter(([name]) => name.startsWith("show-"));
  const isFiltered = filters.some(([, shown]) => shown === "0");
  const isMixed = !["ranked", "mixed"].includes(state.recipe);
  return [
    isFiltered ? "Decision and command ignore the filters by technique." : [],
    isMixed ? "The command ranks all training recipes together." : [],
    state.hardware === "0" ? []
      : `It answers for ${hardware} (${id}), the environment with most configurations.`,
  ].flat().join(" ");
};

const showCommand = () => {
  const gib = Number((budget() / GIB).toFixed(6));
  byId("command").textContent = command();
  byId("command-notes").textContent = commandNotes();
  const size = isBounded() ? gib : Math.ceil(span()[1] / GIB);
  for (const place of document.querySelectorAll(".budget-gib")) place.textContent = String(size);
};
