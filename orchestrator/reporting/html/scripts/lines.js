// Throughput by micro-batch: a line for each set of techniques.
import { draw } from "./chart.js";
import { environments } from "./choice.js";
import { byId, definitions, element } from "./dom.js";
import { measured } from "./picked.js";
import { LETTER } from "./plot.js";
import { columns, data, measures, speed, state } from "./state.js";

const NARROW = matchMedia("(max-width: 52rem)");

export const drawLines = () => {
  const all = environments().flatMap((environment) => data.environments[environment].lines);
  byId("lines-section").hidden = all.length === 0;
  if (all.length === 0) return;
  const inView = all.filter((own) => own[state.lines]);
  // Where techniques were never measured one at a time, the fastest sets say more than nothing.
  const listed = inView.length > 1 ? inView : all.filter((own) => own.best);
  const speeds = measures.get(speed).values;
  const marks = listed.flatMap(({ name, points, sizes }, index) => {
    const colour = data.palette[index % data.palette.length];
    const line = { name, x: sizes, y: points.map((point) => speeds[point]) };
    return [
      { ...line, kind: "points", ids: points, size: 3, attributes: { fill: colour } },
      { ...line, kind: "line", attributes: { stroke: colour, "stroke-width": 2 } },
    ];
  });
  // The names stand at the lines' ends, apart; on a phone the key alone has them.
  const shifts = [...listed.keys()].flatMap((index) => [15 * index, -15 * index - 15]);
  const named = NARROW.matches ? [] : marks.filter(({ kind }) => kind === "line");
  const texts = named.map(({ name, x, y, attributes }) => ({
    x: x.at(-1), y: y.at(-1), text: name, fill: attributes.stroke,
    places: shifts.map((shift) => [8, 4 + shift, "start"]),
  })).sort((a, b) => b.y - a.y);
  const sizes = marks.flatMap((mark) => mark.x);
  const [least, largest] = [Math.min(...sizes), Math.max(...sizes)];
  // The names right of the last point need their share of the width.
  const place = byId("line-chart");
  const letters = Math.max(0, ...texts.map(({ text }) => text.length));
  const share = texts.length ? Math.min(0.5, (LETTER * letters + 24) / place.clientWidth) : 0;
  const end = largest * (largest * 1.1 / least) ** (share / (1 - share)) * 1.1;
  const most = Math.max(...marks.flatMap((mark) => mark.y));
  draw(place, {
    x: { title: "micro-batch", range: [least / 1.1, end], log: true, ticks: [...new Set(sizes)] },
    y: { title: "samples per second", range: [0, 1.08 * most] },
    marks, texts,
    tip: ({ id }) => (id === null ? null
      : [element("strong", {}, columns.label[id]), definitions(measured(id))]),
  });
};

NARROW.addEventListener("change", drawLines);
