// A chart in its place: drawn from its specification (see plot.js), with its key, a box beside the
// pointer, and zoom.
import { button, element } from "./dom.js";
import {
  LETTER, MARGIN, accent, assign, axesOf, label, pathOf, placed, scaleOf, shapePath, svg,
} from "./plot.js";

const REACH = 12; // pixels around a point that count as on it
const charts = new Map(); // place -> the chart that is drawn there

// The point nearest to a pixel, of the marks that are shown.
const nearest = ({ marks, frame: { across, up } }, x, y) => {
  let [found, least] = [null, REACH];
  for (const { ids, x: own, y: heights } of marks.filter((mark) => mark.ids)) {
    ids.forEach((id, index) => {
      const distance = Math.hypot(across(own[index]) - x, up(heights[index]) - y);
      if (distance < least) [found, least] = [id, distance];
    });
  }
  return found;
};

// A box beside the pointer, which never leaves its chart.
const showTip = (box, children, x, y) => {
  box.hidden = children === null;
  if (box.hidden) return;
  box.replaceChildren(...children);
  const { clientWidth, clientHeight } = box.parentElement;
  const right = x + 20;
  const fits = right + box.offsetWidth < clientWidth;
  const left = fits ? right : Math.max(0, x - 20 - box.offsetWidth);
  const top = Math.max(0, Math.min(y - 16, clientHeight - box.offsetHeight));
  box.style.translate = `${left}px ${top}px`;
};

// Shows the part of the chart between these pixels of its frame.
const zoomTo = (place, left, right, top, bottom) => {
  const chart = charts.get(place);
  const { across, up } = chart.frame;
  chart.zoom = { x: [left, right].map(across.value), y: [bottom, top].map(up.value) };
  render(place);
};

// The pointer shows and picks points, and drags a box to zoom into; with the shift key it moves
// the chart.
const listen = (place, root, box) => {
  const chart = charts.get(place);
  const brush = svg("rect", { fill: accent, "fill-opacity": 0.15, stroke: accent });
  let begin = null;
  const at = ({ clientX, clientY }) => {
    const { left, top } = root.getBoundingClientRect();
    return [clientX - left - MARGIN.left, clientY - top - MARGIN.top];
  };
  root.addEventListener("pointerdown", (event) => {
    if (chart.spec.view === undefined || event.pointerType !== "mouse") return;
    begin = at(event);
    root.setPointerCapture(event.pointerId);
  });
  root.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    const found = { id: nearest(chart, x, y), x: chart.frame.across.value(x) };
    const tip = begin === null ? chart.spec.tip(found) : null;
    showTip(box, tip, x + MARGIN.left, y + MARGIN.top + root.offsetTop);
    if (begin === null || event.shiftKey) return;
    const [left, top] = [Math.min(x, begin[0]), Math.min(y, begin[1])];
    const size = { width: Math.abs(x - begin[0]), height: Math.abs(y - begin[1]) };
    assign(brush, { x: left, y: top, ...size });
    root.firstChild.append(brush);
  });
  root.addEventListener("pointerup", (event) => {
    const [x, y] = at(event);
    const [left, top] = begin ?? [x, y];
    begin = null;
    brush.remove();
    const id = nearest(chart, x, y);
    const { width, height } = chart.frame;
    if (Math.hypot(x - left, y - top) < 4) {
      if (id !== null) chart.spec.pick?.(id);
    } else if (event.shiftKey) zoomTo(place, left - x, width + left - x, top - y, height + top - y);
    else zoomTo(place, Math.min(x, left), Math.max(x, left), Math.min(y, top), Math.max(y, top));
  });
  root.addEventListener("pointerleave", () => { box.hidden = true; });
};

// Names of marks with their signs; each button shows or hides what has its name.
const keyOf = (place) => {
  const { spec, hidden } = charts.get(place);
  const named = new Map(spec.marks.filter(({ name }) => name).map((mark) => [mark.name, mark]));
  const signs = { points: shapePath("●", 4, 8, 6), line: "M0 6h16", area: "M3 1h10v10h-10z" };
  return [...named.values()].map(({ name, kind, attributes }) => {
    const sign = svg("path", { d: signs[kind], fill: "none", ...attributes });
    const entry = button(name, () => {
      if (!hidden.delete(name)) hidden.add(name);
      render(place);
    }, { "aria-pressed": !hidden.has(name) });
    entry.prepend(svg("svg", { width: 16, height: 12 }, sign));
    return entry;
  });
};

// The chart as it is, with its key, as a picture to keep.
const save = (place) => {
  const root = place.querySelector("svg[role]").cloneNode(true);
  const [width, height] = root.getAttribute("viewBox").split(" ").slice(2).map(Number);
  let [x, y] = [MARGIN.left, height + 12];
  for (const entry of place.querySelectorAll(".key button")) {
    const room = 30 + LETTER * entry.textContent.length;
    if (x + room > width) [x, y] = [MARGIN.left, y + 18];
    const sign = entry.firstChild.firstChild.cloneNode();
    const text = label(entry.textContent, { x: 20, y: 10 });
    root.append(svg("g", { transform: `translate(${x} ${y - 10})` }, sign, text));
    x += room;
  }
  const tall = y + 12;
  assign(root, { width, height: tall, viewBox: `0 0 ${width} ${tall}` });
  const canvas = element("canvas", { width: 2 * width, height: 2 * tall });
  const image = new Image();
  image.addEventListener("load", () => {
    const pen = canvas.getContext("2d");
    pen.fillStyle = "#ffffff";
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(image, 0, 0, canvas.width, canvas.height);
    element("a", { href: canvas.toDataURL(), download: "chart.png" }).click();
  });
  const text = new XMLSerializer().serializeToString(root);
  image.src = `data:image/svg+xml,${encodeURIComponent(text)}`;
};

const toolsOf = (place) => {
  const chart = charts.get(place);
  const grow = (share) => () => {
    const { width, height } = chart.frame;
    zoomTo(place, -share * width, width * (1 + share), -share * height, height * (1 + share));
  };
  const tool = (sign, name, act) => button(sign, act, { title: name, "aria-label": name });
  return [
    tool("+", "Zoom in", grow(-0.2)), tool("−", "Zoom out", grow(1 / 3)),
    tool("⟲", "Show the whole chart", () => { chart.zoom = null; render(place); }),
    tool("⤓", "Save the picture", () => save(place)),
  ];
};

const render = (place) => {
  const chart = charts.get(place);
  const { spec, zoom, hidden } = chart;
  const root = svg("svg", { role: "img", "font-family": "system-ui, sans-serif" });
  const box = element("div", { class: "tip", hidden: "" });
  const tools = spec.view === undefined ? [] : toolsOf(place);
  place.replaceChildren(element("div", { class: "key" }, ...keyOf(place)), root, box,
    element("div", { class: "tools" }, ...tools));
  // What the key leaves is the chart's room.
  const { width: whole, height: tall } = root.getBoundingClientRect();
  root.setAttribute("viewBox", `0 0 ${whole} ${tall}`);
  const width = Math.max(1, whole - MARGIN.left - MARGIN.right);
  const height = Math.max(1, tall - MARGIN.top - MARGIN.bottom);
  const axes = { x: { ...spec.x }, y: { ...spec.y } };
  if (zoom) for (const name of ["x", "y"]) axes[name].range = zoom[name];
  const [across, up] = [scaleOf(axes.x, 0, width), scaleOf(axes.y, height, 0)];
  chart.frame = { across, up, width, height };
  chart.marks = spec.marks.filter(({ name }) => !hidden.has(name));
  const marks = chart.marks.map((mark) => pathOf(mark, chart.frame));
  const inside = svg("svg", { width, height }, ...marks, ...placed(spec, chart.frame),
    svg("g", { class: "overlay" }));
  root.append(svg("g", { transform: `translate(${MARGIN.left} ${MARGIN.top})` },
    ...axesOf(axes, chart.frame), inside));
  overlay(place, chart.overlay);
  listen(place, root, box);
};

// Draws a chart; what the key hides, and a zoom of the same view, stays.
export const draw = (place, spec) => {
  const { zoom = null, hidden = new Set(), spec: before } = charts.get(place) ?? {};
  const isSame = before?.view === spec.view;
  charts.set(place, { spec, hidden, zoom: isSame ? zoom : null, overlay: [] });
  render(place);
};

// Marks above the chart that change more often than it does.
export const overlay = (place, marks) => {
  const chart = charts.get(place);
  chart.overlay = marks;
  const paths = marks.map((mark) => pathOf(mark, chart.frame));
  place.querySelector(".overlay").replaceChildren(...paths);
};

addEventListener("resize", () => {
  for (const place of charts.keys()) {
    if (place.isConnected) render(place);
    else charts.delete(place);
  }
});
