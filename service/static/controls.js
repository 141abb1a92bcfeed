// The forms. A setting that is being edited stays as it is; all others follow the daemon. The daemon
// writes the controls into the page; this script treats a control by its kind, not by its name.

import { $, all, put } from "./dom.js";
import { attempt } from "./connection.js";
import { at, exact, plain } from "./format.js";
import { send, Settings } from "./settings.js";

// The check box that stands for a word, such as auto, in place of the control's value.
const wordBox = (control) => $("input:not([name])", control.closest(".field"));

function say(form, text, kind = "") {
  const answer = $("output", form);
  answer.dataset.kind = kind;
  put(answer, text);
}

// A text field may hold any value: a number or a list is sent as such, everything else as text.
function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

// The value of a control as the daemon wants it.
function wanted(control) {
  const word = wordBox(control);
  if (word?.checked) return word.value;
  if (control.type === "checkbox") return control.checked;
  if (control.type === "text") return valueOf(control.value);
  if (control.type !== "number") return control.value;
  return control.value === "" ? null : Number(control.value);
}

function fill(control, value) {
  const word = wordBox(control);
  if (word) {
    word.checked = value === word.value;
    if (word.checked) return;
  }
  if (control.type === "checkbox") {
    control.checked = value;
    return;
  }
  const text = Array.isArray(value) ? JSON.stringify(value) : String(value ?? "");
  if (control.value !== text) control.value = text;
}

// {"inference.fill": 1} as {inference: {fill: 1}}.
function merged(changes) {
  const patch = {};
  for (const [name, value] of changes) {
    const [section, key] = name.split(".");
    patch[section] = { ...patch[section], [key]: value };
  }
  return patch;
}

class SettingsForm {
  constructor(form, onChanged) {
    this.form = form;
    this.onChanged = onChanged;
    this.settings = new Settings();
    this.controls = all("[name]", form);
    this.edited = new Set();
    this.sending = false;
    form.addEventListener("input", ({ target }) => this.edit($("[name]", target.closest(".field"))));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.apply();
    });
    for (const kind of ["focusin", "pointerover"]) {
      form.addEventListener(kind, ({ target }) => this.explain(target.closest(".field")));
    }
    $(".discard", form).addEventListener("click", () => {
      this.discard();
      // The button disappears, and the keyboard's place on the page would go with it.
      $("[type=submit]", form).focus();
    });
  }

  explain(field) {
    if (field) $("#help").replaceChildren(...$(".help", field).cloneNode(true).childNodes);
  }

  // A switch acts at once, everything else when it is applied.
  edit(control) {
    if (control.type === "checkbox") {
      if (this.sending) this.show();
      else this.change([[control.name, control.checked]]);
      return;
    }
    this.edited.add(control.name);
    say(this.form, "");
    this.show();
  }

  discard() {
    this.edited.clear();
    say(this.form, "");
    this.reload();
  }

  // Reads the settings, unless they are being edited: then the ETag must stay that of what was seen.
  async refresh() {
    if (!this.edited.size && !this.sending) await this.reload();
  }

  async reload() {
    await attempt(async () => {
      // What was said is of settings that have changed since.
      if (await this.settings.load()) say(this.form, "");
      else if (!this.settings.values) say(this.form, "The settings cannot be read at the moment.");
    });
    this.show();
  }

  // Disabled until the settings are known: an empty field would say that there is no limit.
  show() {
    const { values } = this.settings;
    $("fieldset", this.form).disabled = !values;
    for (const control of this.controls) {
      const touched = this.edited.has(control.name);
      const field = control.closest(".field");
      const changed = touched && this.differs(control);
      field.classList.toggle("edited", changed);
      put($(".now", field), changed ? `now ${exact(at(values, control.name))}` : "");
      if (!touched && values) fill(control, at(values, control.name));
      control.disabled = wordBox(control)?.checked ?? false;
    }
    $(".discard", this.form).hidden = !this.edited.size;
  }

  differs(control) {
    const value = at(this.settings.values, control.name);
    return control.validity.badInput || JSON.stringify(wanted(control)) !== JSON.stringify(value);
  }

  async apply() {
    if (this.sending) return;
    const controls = this.controls.filter(({ name }) => this.edited.has(name));
    const wrong = controls.find((control) => control.validity.badInput);
    const changes = controls.filter((control) => this.differs(control))
      .map((control) => [control.name, wanted(control)]);
    if (wrong) say(this.form, `Not changed: ${wrong.name} is not a number.`, "refused");
    else if (changes.length) await this.change(changes);
    else this.discard();
  }

  async change(changes) {
    this.sending = true;
    say(this.form, "Changing …");
    const buttons = all("button", this.form);
    for (const button of buttons) button.ariaDisabled = "true";
    let outcome;
    try {
      outcome = await this.settings.change(merged(changes));
    } finally {
      for (const button of buttons) button.ariaDisabled = null;
      this.sending = false;
    }
    if (outcome.stale) await this.stale();
    else if (outcome.late) await this.giveUp(changes, `Not in force yet: ${outcome.late}.`);
    else if (outcome.refused) say(this.form, `Not changed: ${outcome.refused}.`, "refused");
    else if (outcome.unknown) await this.giveUp(changes, "No answer came, so it is not known whether "
      + "this was changed. The form shows what the daemon reported last.");
    else this.accepted(changes);
    this.show();
  }

  // What was edited again while it was being sent stays edited.
  forget(changes) {
    for (const [name, value] of changes) {
      const now = wanted(this.controls.find((control) => control.name === name));
      if (JSON.stringify(now) === JSON.stringify(value)) this.edited.delete(name);
    }
  }

  accepted(changes) {
    const said = changes.map(([name]) => `${name} = ${exact(at(this.settings.values, name))}`).join(", ");
    this.forget(changes);
    say(this.form, `In force: ${said}.`, "accepted");
    this.onChanged();
  }

  // Shows the daemon's settings instead of the changes, which may come into force or not.
  async giveUp(changes, text) {
    this.forget(changes);
    await this.reload();
    say(this.form, text);
  }

  async stale() {
    await this.reload();
    say(this.form, "Not changed: somebody else has changed these settings meanwhile. They have been "
      + "read again; look at them and apply yours once more.", "refused");
  }
}

async function writeCheckpoint(form, onChanged) {
  const outcome = await send("POST", "/v1/checkpoints", { replay: form.elements.replay.checked });
  if (outcome.late) say(form, `Not written yet: ${outcome.late}.`);
  else if (outcome.refused) say(form, `Failed: ${outcome.refused}.`, "refused");
  else if (outcome.unknown) {
    say(form, "No answer came, so it is not known whether it was written. The events will tell.");
  } else {
    say(form, `Written: ${outcome.result.file}, after ${plain(outcome.result.updates)} updates.`, "accepted");
    onChanged();
  }
}

function startCheckpoint(form, onChanged) {
  const button = $("button", form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (button.ariaDisabled) return;
    button.ariaDisabled = "true";
    say(form, "Writing …");
    await writeCheckpoint(form, onChanged);
    button.ariaDisabled = null;
  });
}

// Gives a function that reads the settings again, unless they are being edited.
export function startControls(onChanged) {
  const form = new SettingsForm($("#settings"), onChanged);
  startCheckpoint($("#checkpoint"), onChanged);
  return () => form.refresh();
}
