// The table of the processes: state, restarts, last error.

import { $, make, newRow, put, UNKNOWN } from "./dom.js";
import { at, shown } from "./format.js";

const COLUMNS = [
  ["name"], ["state"], ["pid number", "PID"], ["p50 number", "Inference p50"],
  ["p99 number", "Inference p99"], ["weights number", "Weights"], ["restarts number", "Restarts"],
  ["error"],
];
const FROM_WORKER = [["p50", "latency_ms.p50", "ms"], ["p99", "latency_ms.p99", "ms"], ["weights", "weights_version", "count"]];

const body = $("#processes");
const rows = new Map();

function processRow() {
  const row = newRow(COLUMNS);
  row.querySelector(".state").append(make("span", "dot"), make("span"));
  return row;
}

function showError(cell, error) {
  if (cell.dataset.error === (error ?? "")) return;
  cell.dataset.error = error ?? "";
  cell.replaceChildren();
  cell.classList.toggle("blank", !error);
  if (!error) return;
  const details = make("details");
  details.append(make("summary", "", error.trim().split("\n").at(-1)), make("pre", "", error));
  cell.append(details);
}

function showProcess(row, role, worker) {
  const cell = (name) => row.querySelector(`td.${name}`);
  row.dataset.state = role.state;
  put(cell("name"), role.name);
  put(cell("state").lastChild, shown(role.busy ?? role.state, "text"));
  put(cell("pid"), role.pid ? String(role.pid) : UNKNOWN);
  for (const [name, path, format] of FROM_WORKER) {
    put(cell(name), worker ? shown(at(worker, path), format) : "");
    cell(name).classList.toggle("blank", !worker);
  }
  put(cell("restarts"), shown(role.restarts, "count"));
  showError(cell("error"), role.last_error);
}

export function showProcesses(roles, workers) {
  const seen = new Set();
  roles.forEach((role, place) => {
    const row = rows.get(role.name) ?? processRow();
    rows.set(role.name, row);
    seen.add(role.name);
    const worker = role.role === "inference" ? workers.find(({ id }) => id === role.index) : null;
    showProcess(row, role, worker);
    if (body.children[place] !== row) body.insertBefore(row, body.children[place] ?? null);
  });
  for (const [name, row] of rows) {
    if (seen.has(name)) continue;
    row.remove();
    rows.delete(name);
  }
}
