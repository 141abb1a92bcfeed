// Sends the held keys, shows the game's picture and state.

const KEYS = {
  ArrowUp: "UP", ArrowDown: "DOWN", ArrowLeft: "LEFT", ArrowRight: "RIGHT",
  z: "B", x: "A", Enter: "START", Shift: "SELECT",
};
// For keyboards without Latin letters, the keys at these letters' places.
const PLACES = { KeyZ: "z", KeyX: "x", KeyS: "s", KeyR: "r", KeyN: "n", KeyP: "p", KeyQ: "q" };
const LABELS = {
  UP: "↑", DOWN: "↓", LEFT: "←", RIGHT: "→", B: "Z", A: "X", START: "Enter", SELECT: "Shift",
};
const CONTROLS = { s: "save", r: "record", n: "restart", p: "pause", q: "finish" };
const TAKEN_OVER = 4001;

const $ = (selector) => document.querySelector(selector);
const screen = $("#screen");
const pen = screen.getContext("2d");
const held = new Map();
const protocols = ["rtagent-play", location.hash.slice(1) || "none"];
const socket = new WebSocket(`ws://${location.host}/play`, protocols);
let opened = false;
let finished = false;

function send(message) {
  if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
}

// Writes only a text that differs: an unchanged one costs no layout.
function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function make(tag, text, className = "") {
  const element = document.createElement(tag);
  [element.textContent, element.className] = [text, className];
  return element;
}

function sendKeys() {
  send({ keys: [...new Set(held.values())] });
  for (const item of $("#keys").children) {
    item.classList.toggle("held", [...held.values()].includes(item.dataset.button));
  }
}

function focus() {
  held.clear();
  send({ focus: document.hasFocus() && !document.hidden });
  sendKeys();
}

function nameOf({ key, code }) {
  const name = key.length === 1 ? key.toLowerCase() : key;
  return name in KEYS || name in CONTROLS ? name : PLACES[code] ?? name;
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const name = nameOf(event);
  if (!(name in KEYS || name in CONTROLS)) return;
  event.preventDefault();
  if (event.repeat) return;
  if (name in CONTROLS) {
    $(`[data-do="${CONTROLS[name]}"]`).click();
  } else {
    held.set(event.code, KEYS[name]);
    sendKeys();
  }
});
addEventListener("keyup", ({ code }) => {
  if (held.delete(code)) sendKeys();
});
addEventListener("focus", focus);
addEventListener("blur", focus);
document.addEventListener("visibilitychange", focus);
for (const button of document.querySelectorAll("[data-do]")) {
  button.addEventListener("click", () => send({ do: button.dataset.do }));
}

function draw(buffer) {
  const [width, height] = new Uint16Array(buffer, 0, 2);
  if (screen.width !== width || screen.height !== height) {
    [screen.width, screen.height] = [width, height];
  }
  pen.putImageData(new ImageData(new Uint8ClampedArray(buffer, 4), width, height), 0, 0);
}

function list(element, items) {
  const text = items.join("\n");
  if (element.dataset.text === text) return;
  element.dataset.text = text;
  element.replaceChildren(...items.map((item) => make("li", item)));
}

function showValues(values) {
  const names = Object.keys(values);
  const table = $("#values");
  if (table.children.length !== names.length) {
    table.replaceChildren(...names.map((name) => {
      const row = make("div", "");
      row.append(make("dt", name), make("dd", ""));
      return row;
    }));
  }
  names.forEach((name, place) => {
    put(table.children[place].firstChild, name);
    put(table.children[place].lastChild, values[name]);
  });
}

function showKeys(usable) {
  if ($("#keys").children.length) return;
  $("#keys").append(...Object.entries(LABELS).map(([button, label]) => {
    const item = make("li", "", usable.includes(button) ? "" : "none");
    item.dataset.button = button;
    item.append(make("kbd", label), ` ${button}`);
    return item;
  }));
}

function stateOf({ finished: over, recording, running, paused }) {
  if (over) return ["finished", "finished"];
  if (paused) return ["paused", recording ? "recording paused" : "paused"];
  if (!running) return ["unfocused", "click here to go on"];
  return recording ? ["recording", "recording"] : ["playing", "playing"];
}

function press(name, pressed) {
  $(`[data-do="${name}"]`).setAttribute("aria-pressed", String(pressed));
}

function show(game) {
  finished = game.finished;
  setState(...stateOf(game));
  put($("#environment"), game.environment);
  put($("#told"), game.told);
  for (const name of ["ticks", "return", "last_reward"]) {
    put($(`#${name}`), String(Number(game[name].toFixed(3))));
  }
  put($("#ended"), game.ended || "no");
  showValues(game.values);
  showKeys(game.buttons);
  $('[data-do="save"]').disabled = !game.can_save || finished;
  $('[data-do="record"]').disabled = !game.can_record || finished;
  press("record", game.recording);
  press("pause", game.paused);
  put($('[data-do="record"] span'), game.recording ? "Stop recording" : "Record");
  const episodes = `${game.episodes} episode${game.episodes === 1 ? "" : "s"}`;
  const tape = `${game.demonstration}: ${episodes}, ${game.recorded_ticks} ticks`;
  list($("#kept"), [...(game.recorded_ticks ? [tape] : []), ...game.states]);
}

function setState(state, text) {
  $("#state").dataset.state = state;
  put($("#state"), text);
}

socket.binaryType = "arraybuffer";
socket.onopen = () => {
  opened = true;
  focus();
};
socket.onmessage = ({ data }) => (typeof data === "string" ? show(JSON.parse(data)) : draw(data));
socket.onclose = ({ code }) => {
  for (const button of document.querySelectorAll("button")) button.disabled = true;
  if (finished) return;
  setState("lost", "not connected");
  if (!opened) put($("#told"), "This page may not play: open the address that rtagent printed.");
  else if (code === TAKEN_OVER) put($("#told"), "The game goes on in another page.");
  else put($("#told"), "rtagent rom record has ended.");
};
