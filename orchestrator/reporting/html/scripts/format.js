// How figures are written for people, as in orchestrator.units.
export const GIB = 2 ** 30;

// Three significant digits.
export const digits = (value) => {
  const size = Math.abs(value);
  if (size >= 100) return Math.round(value).toLocaleString("en");
  if (size >= 10) return value.toFixed(1);
  if (size >= 1) return value.toFixed(2);
  return String(Number(value.toPrecision(3)));
};

// Bytes in the unit that reads best.
export const memory = (bytes) => {
  const units = ["B", "KiB", "MiB", "GiB"];
  let [value, unit] = [Math.abs(bytes), 0];
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  let decimals = 2;
  if (value >= 100 || Number.isInteger(value)) decimals = 0;
  else if (value >= 10) decimals = 1;
  return `${bytes < 0 ? "−" : ""}${value.toFixed(decimals)} ${units[unit]}`;
};

export const duration = (seconds) =>
  (seconds >= 1 ? `${digits(seconds)} s` : `${digits(seconds * 1000)} ms`);

// A ratio as a change: ×2.50 from doubling on, +12 % below.
export const percent = (ratio) => {
  if (ratio >= 2) return `×${digits(ratio)}`;
  const rounded = Math.round(100 * (ratio - 1));
  if (rounded === 0) return "±0 %";
  return `${rounded > 0 ? "+" : "−"}${Math.abs(rounded)} %`;
};

// From 9.95 % on, a decimal would say more than is known.
export const plusMinus = (error) =>
  (error === null ? "" : `±${(100 * error).toFixed(error < 0.0995 ? 1 : 0)} %`);

export const words = (column) =>
  column.replaceAll("_", " ").replace(/ bytes$/, "").replace(/ seconds median$/, ", median");

// A value of a column of the table, by the unit in the column's name.
export const detail = (column, value) => {
  if (typeof value !== "number") return String(value);
  if (column.endsWith("_bytes")) return memory(value);
  if (column.endsWith("_seconds_median")) return duration(value);
  return Number.isInteger(value) ? value.toLocaleString("en") : digits(value);
};

export const capitalized = (text) => text.charAt(0).toUpperCase() + text.slice(1);
