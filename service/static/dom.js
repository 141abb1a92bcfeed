// Short names for what every panel does with the page.

export const UNKNOWN = "unknown";

export const $ = (selector, root = document) => root.querySelector(selector);
export const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// Writes a text only if it differs: an unchanged one costs no layout and is not read out again.
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
  element.classList.toggle("unknown", text === UNKNOWN);
}

export function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

// A table's row with a cell for each column: [class, label that narrow pages show beside the value].
export function newRow(columns) {
  const row = make("tr");
  for (const [kind, label] of columns) {
    const cell = row.insertCell();
    cell.className = kind;
    if (label) cell.dataset.label = label;
  }
  return row;
}
