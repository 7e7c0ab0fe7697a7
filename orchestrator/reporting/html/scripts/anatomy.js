// Profiled configurations: bars for the Pareto front, and the whole anatomy of the picked one.
import { draw } from "./chart.js";
import { byId, definitions, element } from "./dom.js";
import { digits, duration, memory } from "./format.js";
import { soft } from "./plot.js";
import { columns, data, state } from "./state.js";

const sum = (entries) => entries.reduce((whole, [, size]) => whole + size, 0);
const namesOf = (all) => [...new Set(all.flatMap((entries) => entries.map(([name]) => name)))];

// Each name keeps its colour across configurations.
const colouring = (all) => {
  const names = namesOf(all);
  return (name) => data.palette[names.indexOf(name) % data.palette.length];
};

const swatch = (colour, text) => {
  const sign = element("i", {});
  sign.style.background = colour;
  return element("li", {}, sign, text);
};

const bar = (entries, colour, room, write) => {
  const parts = [...entries, ["", room - sum(entries)]].map(([name, size]) => {
    const part = element("span", name ? { title: `${name}: ${write(size)}` } : {});
    part.style.flexGrow = Math.max(0, size / room);
    if (name) part.style.background = colour(name);
    return part;
  });
  return element("div", { class: "anatomy", "aria-hidden": "true" }, ...parts);
};

export const barSection = (title, entries, write) => {
  if (entries.length === 0) return [];
  const colour = colouring([entries]);
  const listed = [...entries].sort(([, a], [, b]) => b - a);
  const list = listed.map(([name, size]) => swatch(colour(name), `${name} ${write(size)}`));
  return [element("h4", {}, title), bar(listed, colour, sum(listed), write),
    element("ul", { class: "parts" }, ...list)];
};

const MAX_BARS = 40;
export const showBars = (front, named) => {
  const profiled = front.filter((point) => point in data.anatomies).slice(0, MAX_BARS);
  byId("anatomy").hidden = profiled.length === 0;
  if (profiled.length === 0) return;
  const write = state.part === "memory" ? memory : duration;
  const all = profiled.map((point) => data.anatomies[point][state.part]);
  const [colour, room] = [colouring(all), Math.max(...all.map(sum))];
  byId("anatomy-whole").textContent = state.part === "memory" ? "memory" : "step";
  byId("anatomy-key").replaceChildren(...namesOf(all).map((name) => swatch(colour(name), name)));
  byId("anatomy-rows").replaceChildren(...profiled.map((point, index) => {
    const spoken = all[index].map(([name, size]) => `${name} ${write(size)}`).join(", ");
    const shares = bar(all[index], colour, room, write);
    return element("tr", {}, named(point), element("td", { class: "n" }, write(sum(all[index]))),
      element("td", {}, shares, element("span", { class: "unseen" }, spoken)));
  }));
};

// The anatomy of a configuration; else its memory, as the table has it.
export const anatomy = (point) => {
  const profile = data.anatomies[point];
  const sizes = columns.memoryLayers[point] ?? [];
  if (!profile) {
    const layers = sizes.map((size, index) => [data.memoryLayers[index], size]);
    return barSection("Memory at the peak, from the table's columns", layers, memory);
  }
  const [ratio, mfu] = profile.ratios;
  const about = [["backward / forward", ratio], ["MFU", mfu]].filter(([, text]) => text !== "");
  const over = "Memory over one step";
  const chart = element("div", { class: "plot timeline", role: "group", "aria-label": over });
  return [
    ...barSection("Memory at the peak", profile.memory, memory),
    ...barSection("Time of a step, by kind of operation", profile.operations, duration),
    ...barSection("Forward and backward pass, by class of module", profile.modules, duration),
    ...barSection("Time of a step, by what the loop did", profile.step, duration),
    definitions(about),
    ...(profile.timeline.seconds.length ? [element("h4", {}, over), chart] : []),
  ];
};

const MAX_PHASES = 12;

// Draws the picked configuration's memory over one step: one area on top of the other.
export const drawTimeline = (point) => {
  const place = byId("picked").querySelector(".timeline");
  if (place === null) return;
  const { memory: parts, timeline: { seconds, mib, phases } } = data.anatomies[point];
  const colour = colouring([parts, Object.entries(mib)]);
  const x = seconds.map((each) => each * 1000);
  let low = x.map(() => 0);
  const areas = Object.entries(mib).map(([name, sizes]) => {
    const high = low.map((size, index) => size + sizes[index]);
    const area = { kind: "area", name, x, low, high, attributes: { fill: colour(name) } };
    low = high;
    return area;
  });
  const most = 1.12 * Math.max(...low);
  const dotted = { stroke: soft, "stroke-dasharray": "1 3" };
  const begun = phases.filter(([name]) => !["upkeep", "data"].includes(name)).slice(0, MAX_PHASES)
    .map(([text, begin]) => ({ text, at: begin * 1000 }));
  draw(place, {
    x: { title: "ms under the profiler", range: [0, 1.05 * x.at(-1)] },
    y: { title: "MiB", range: [0, most] },
    marks: [...areas, ...begun.map(({ at }) =>
      ({ kind: "rule", axis: "x", at, attributes: dotted }))],
    texts: begun.map(({ text, at }) =>
      ({ x: at, y: most, text, fill: soft, places: [[3, 14, "start"]] })),
    tip: ({ x: at }) => {
      const index = x.findLastIndex((each) => each <= at);
      if (index < 0) return null;
      const held = Object.entries(mib).map(([name, sizes]) => [name, `${digits(sizes[index])} MiB`]);
      return [definitions([["ms", x[index].toFixed(1)], ...held])];
    },
  });
};
