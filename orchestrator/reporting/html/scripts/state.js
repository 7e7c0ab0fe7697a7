// What the reader chose: the page's controls, by their names, are the state. Its address holds
// what differs from the page as it opened, so that a link reopens the same view.
import { byId } from "./dom.js";

export const data = JSON.parse(byId("data").textContent);
export const { columns } = data;
export const speed = "samples_per_second";
export const measures = new Map(data.measures.map((measure) => [measure.name, measure]));

const PREFIX = "#view&";
const controls = new Map([...byId("view").elements].filter(({ name }) => name)
  .map((control) => [control.name, control]));
const valueOf = ({ type, checked, value }) =>
  (type === "checkbox" ? String(Number(checked)) : value);
const opened = new Map([...controls].map(([name, control]) => [name, valueOf(control)]));

// Name of a control -> its value as text, "0" or "1" for a checkbox.
export const state = Object.fromEntries(opened);

// Whether a control can have a value; what an address says may be anything.
const accepts = (control, value) => {
  if (control.tagName === "SELECT") return [...control.options].some((own) => own.value === value);
  if (control.type === "checkbox") return ["0", "1"].includes(value);
  if (["picked", "pinned"].includes(control.name)) return columns.trial.includes(value);
  return value === "" || (Number(value) > 0 && Number.isFinite(Number(value)));
};

export const choose = (changes) => {
  for (const [name, value] of Object.entries(changes)) {
    const control = controls.get(name);
    if (control.type === "checkbox") control.checked = value === "1";
    else control.value = value;
  }
};

// Reads the controls into the state; returns the names of those that changed.
export const changed = () => {
  const names = [...controls.keys()].filter((name) => valueOf(controls.get(name)) !== state[name]);
  for (const name of names) state[name] = valueOf(controls.get(name));
  return names;
};

export const writeAddress = () => {
  const differing = Object.entries(state).filter(([name, value]) => value !== opened.get(name));
  const written = new URLSearchParams(differing).toString();
  if (written === "" && !location.hash.startsWith(PREFIX)) return;
  history.replaceState(null, "", written ? PREFIX + written : location.pathname + location.search);
};

// The view of the address, or the page as it opened. Any other hash names a section of the page.
export const readAddress = () => {
  const isView = location.hash.startsWith(PREFIX);
  const written = new URLSearchParams(isView ? location.hash.slice(PREFIX.length) : "");
  for (const [name, control] of controls) {
    const wanted = written.get(name);
    choose({ [name]: wanted !== null && accepts(control, wanted) ? wanted : opened.get(name) });
  }
};
