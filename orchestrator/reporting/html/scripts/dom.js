// Elements, and the buttons that copy code.
export const byId = (id) => document.getElementById(id);

// A text among the children stays text: no string of a run is ever read as markup.
export const element = (tag, attributes, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

export const button = (text, onClick, attributes = {}) => {
  const made = element("button", { type: "button", ...attributes }, text);
  made.addEventListener("click", onClick);
  return made;
};

export const definitions = (pairs) => {
  const rows = pairs.map(([name, text]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, text)));
  return element("dl", {}, ...rows);
};

const copyCode = async ({ target }) => {
  const code = target.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    // Pages opened from a file have no clipboard in some browsers.
    getSelection().selectAllChildren(code);
    document.execCommand("copy");
  }
  target.textContent = "Copied";
  setTimeout(() => { target.textContent = "Copy"; }, 1500);
};

for (const each of document.querySelectorAll(".copy")) each.addEventListener("click", copyCode);
