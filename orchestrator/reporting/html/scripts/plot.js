// The parts of a chart as SVG, in the colours of a light page; the style turns them where the page
// is dark. A chart is specified by plain data:
//   x, y    {title, range: [least, most], log, ticks, write}; ticks and write may be missing
//   marks   what is drawn, in this order: {kind, name, attributes, ...}, where the key shows the
//           name, the attributes are those of an SVG path, and the kinds are
//             points {x, y, ids, size, shapes}, line {x, y, isStepped}, area {x, low, high},
//             rule {axis, at}
//   texts   {x, y, text, fill, places}, most important first: each is written at the first of its
//           places, [dx, dy, anchor] in pixels, that has room, and otherwise left out
//   most    how many texts are written, at most
//   tip     ({id, x}) => children of the box beside the pointer, or null
//   pick    (id) => what a click on a point does
//   view    a text; a zoom stays as long as it is the same. Without it there is no zoom
export const [ink, soft, faint, accent] = ["#1b1f24", "#57606a", "#d8dee4", "#0757a8"];
export const LETTER = 6.3; // pixels of a letter at 12 px, on average
export const MARGIN = { left: 66, right: 16, top: 8, bottom: 46 }; // pixels around the frame

export const assign = (made, attributes) => {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
};
export const svg = (tag, attributes, ...children) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  assign(made, attributes);
  made.append(...children);
  return made;
};

// A function from values to pixels; its `value` leads back.
export const scaleOf = ({ range, log }, begin, end) => {
  const [there, back] = log ? [Math.log, Math.exp] : [Number, Number];
  const [low, high] = range.map(there);
  const perUnit = (end - begin) / (high - low || 1);
  const scale = (value) => begin + (there(value) - low) * perUnit;
  scale.value = (pixel) => back(low + (pixel - begin) / perUnit);
  return scale;
};

// Round numbers: about `count` of them, or 1, 2 and 5 of each decade of a logarithmic axis.
const ticksOf = ({ range: [least, most], log, ticks }, count) => {
  const decade = 10 ** Math.floor(Math.log10(log ? least : (most - least) / count));
  const grain = [1, 2, 5, 10].map((factor) => factor * decade);
  const step = grain.find((each) => (most - least) / each <= count);
  const first = Math.ceil(least / step);
  const decades = () => [...Array(12).keys()].flatMap((power) =>
    grain.slice(0, 3).map((each) => each * 10 ** power));
  const even = () => [...Array(count + 2).keys()].map((index) => (first + index) * step);
  const listed = ticks ?? (log ? decades() : even());
  return listed.filter((tick) => tick >= least && tick <= most);
};
const plain = (tick) => tick.toLocaleString("en", { maximumFractionDigits: 4 });

// Corners of the shapes of points, x and y in turn, all of about the area of a circle of radius 1.
const SHAPES = {
  "●": [],
  "■": [-0.9, -0.9, 0.9, -0.9, 0.9, 0.9, -0.9, 0.9],
  "▲": [0, -1.2, 1.2, 0.9, -1.2, 0.9],
  "◆": [0, -1.3, 1.3, 0, 0, 1.3, -1.3, 0],
  "▼": [0, 1.2, -1.2, -0.9, 1.2, -0.9],
  "✚": [-0.4, -1.2, 0.4, -1.2, 0.4, -0.4, 1.2, -0.4, 1.2, 0.4, 0.4, 0.4,
    0.4, 1.2, -0.4, 1.2, -0.4, 0.4, -1.2, 0.4, -1.2, -0.4, -0.4, -0.4],
  "⬢": [-0.6, -1, 0.6, -1, 1.15, 0, 0.6, 1, -0.6, 1, -1.15, 0],
  "★": [0, -1.4, 0.35, -0.45, 1.35, -0.45, 0.55, 0.2, 0.85, 1.2,
    0, 0.6, -0.85, 1.2, -0.55, 0.2, -1.35, -0.45, -0.35, -0.45],
};
export const shapes = Object.keys(SHAPES);
export const shapePath = (shape, size, x, y) => {
  const pixels = SHAPES[shape].map((each, index) => (each * size + (index % 2 ? y : x)).toFixed(1));
  if (pixels.length) return `M${pixels.join(" ")}Z`;
  const arc = `a${size} ${size} 0 1 1`;
  return `M${x - size} ${y}${arc} ${2 * size} 0${arc} ${-2 * size} 0`;
};
const corners = (x, y, isStepped) => x.flatMap((each, index) =>
  (isStepped && index ? [[each, y[index - 1]], [each, y[index]]] : [[each, y[index]]]));

// The path of a mark of each kind, in pixels of its frame.
const PATHS = {
  points: (mark, { across, up }) => mark.x.map((x, index) =>
    shapePath(mark.shapes?.[index] ?? "●", mark.size, across(x), up(mark.y[index]))).join(""),
  line: ({ x, y, isStepped }, { across, up }) =>
    `M${corners(x.map(across), y.map(up), isStepped).join("L")}`,
  area: ({ x, low, high }, { across, up }) => {
    const [pixels, floor, roof] = [x.map(across), low.map(up), high.map(up)];
    const back = corners(pixels, floor, true).reverse();
    return `M${[...corners(pixels, roof, true), ...back].join("L")}Z`;
  },
  rule: ({ axis, at }, { across, up, width, height }) =>
    (axis === "x" ? `M${across(at)} 0v${height}` : `M0 ${up(at)}h${width}`),
};
export const pathOf = (mark, frame) => {
  const path = mark.x?.length === 0 ? "" : PATHS[mark.kind](mark, frame);
  return svg("path", { d: path, fill: "none", ...mark.attributes });
};

export const label = (text, attributes) =>
  svg("text", { "font-size": 12, fill: ink, ...attributes }, text);
const HALO = { "paint-order": "stroke", stroke: "#fff", "stroke-width": 3, "stroke-opacity": 0.7 };

// Each text at its first place that is inside and that no other text has.
export const placed = ({ texts, most }, { across, up, width, height }) => {
  const [taken, written] = [[], []];
  const isApart = (box, own) => own.right <= box.left || own.left >= box.right
    || own.bottom <= box.top || own.top >= box.bottom;
  const hasRoom = (box) => box.left >= 0 && box.right <= width && box.top >= 0
    && box.bottom <= height && taken.every((own) => isApart(box, own));
  for (const { x, y, text, fill, places } of texts) {
    for (const [dx, dy, anchor] of places) {
      const [at, base] = [across(x) + dx, up(y) + dy];
      const left = anchor === "end" ? at - LETTER * text.length : at;
      const box = { left, right: left + LETTER * text.length, top: base - 12, bottom: base + 4 };
      if (written.length === most || !hasRoom(box)) continue;
      taken.push(box);
      const own = { x: at, y: base, "text-anchor": anchor, fill: fill ?? ink };
      written.push(label(text, { ...HALO, ...own }));
      break;
    }
  }
  return written;
};

// Both axes with their ticks and the grid, around the frame.
export const axesOf = ({ x, y }, { across, up, width, height }) => {
  const ticks = (axis, count, draw) => ticksOf(axis, count).flatMap((tick) =>
    draw(tick, (axis.write ?? plain)(tick)));
  const line = (d) => svg("path", { d, stroke: faint, fill: "none" });
  return [
    ...ticks(x, Math.ceil(width / 90), (tick, text) => [
      line(`M${across(tick)} 0v${height + 6}`),
      label(text, { x: across(tick), y: height + 20, "text-anchor": "middle" })]),
    ...ticks(y, Math.ceil(height / 45), (tick, text) => [
      line(`M-6 ${up(tick)}h${width + 6}`),
      label(text, { x: -10, y: up(tick) + 4, "text-anchor": "end" })]),
    line(`M0 0v${height}h${width}`),
    label(x.title, { x: width / 2, y: height + 40, "text-anchor": "middle" }),
    label(y.title, { x: -height / 2, y: -52, transform: "rotate(-90)", "text-anchor": "middle" }),
  ];
};

