// The forms. What somebody is editing stays as it is; everything else follows the daemon.

import { $, all, put } from "./dom.js";
import { attempt } from "./connection.js";
import { plain } from "./format.js";
import { send, Settings } from "./settings.js";

const label = (field) => field.closest("label").querySelector(".label").textContent;

function say(form, text, kind = "") {
  const answer = $("output", form);
  answer.dataset.kind = kind;
  put(answer, text);
}

// The value of a field as the daemon wants it.
function wanted(form, field) {
  if (form.elements.auto?.checked && field.name === "processes") return "auto";
  if (field.tagName === "SELECT") return field.value;
  return field.value === "" ? null : Number(field.value);
}

class SettingsForm {
  constructor(form, onChanged) {
    this.form = form;
    this.onChanged = onChanged;
    this.settings = new Settings(form.dataset.settings);
    this.fields = all("[data-setting]", form);
    this.edited = new Set();
    this.sending = false;
    form.addEventListener("input", (event) => this.edit(event.target));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.apply();
    });
    $(".discard", form).addEventListener("click", () => this.discard());
    const pause = $(".pause", form);
    pause?.addEventListener("click", () => {
      if (!this.sending) this.change({ paused: !this.settings.values.paused });
    });
  }

  edit(element) {
    const field = element.name === "auto" ? this.form.elements.processes : element;
    this.edited.add(field.name);
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
      const known = await this.settings.load();
      if (!known && !this.settings.values) say(this.form, "These settings cannot be read at the moment.", "absent");
      else if ($("output", this.form).dataset.kind === "absent") say(this.form, "");
    });
    this.show();
  }

  // Not before the settings are known: an empty field would say that there is no limit.
  show() {
    const { values } = this.settings;
    $("fieldset", this.form).disabled = !values;
    for (const field of this.fields) {
      const touched = this.edited.has(field.name);
      const value = values?.[field.name] ?? null;
      field.closest("label").classList.toggle("edited", touched);
      put($(".now", field.closest("label")), touched ? `now ${this.inWords(field, value)}` : "");
      if (!touched && values) this.fill(field, value);
    }
    const { auto } = this.form.elements;
    if (auto) this.form.elements.processes.disabled = auto.checked;
    $(".discard", this.form).hidden = !this.edited.size;
    const pause = $(".pause", this.form);
    if (pause && values) {
      put(pause, values.paused ? "Resume learning" : "Pause learning");
      pause.setAttribute("aria-pressed", String(values.paused));
    }
  }

  fill(field, value) {
    if (field.name === "processes" && this.form.elements.auto) {
      this.form.elements.auto.checked = value === "auto";
      if (value === "auto") return;
    }
    const text = value === null ? "" : String(value);
    if (field.value !== text) field.value = text;
  }

  inWords(field, value) {
    return value === null ? field.placeholder || "none" : plain(value);
  }

  async apply() {
    if (this.sending) return;
    const fields = this.fields.filter(({ name }) => this.edited.has(name));
    const wrong = fields.find((field) => field.validity.badInput);
    const entries = fields.map((field) => [field.name, wanted(this.form, field)]);
    const patch = Object.fromEntries(entries.filter(([name, value]) => value !== this.settings.values[name]));
    if (wrong) say(this.form, `Not changed. ${label(wrong)}: not a number.`, "refused");
    else if (Object.keys(patch).length) await this.change(patch);
    else this.discard();
  }

  async change(patch) {
    this.sending = true;
    say(this.form, "Changing …");
    const buttons = all("button", this.form);
    for (const button of buttons) button.ariaDisabled = "true";
    let outcome;
    try {
      outcome = await this.settings.change(patch);
    } finally {
      for (const button of buttons) button.ariaDisabled = null;
      this.sending = false;
    }
    if (outcome.stale) await this.stale();
    else if (outcome.refused) say(this.form, `Not changed. ${outcome.refused}`, "refused");
    else this.accepted(patch);
  }

  accepted(patch) {
    for (const name of Object.keys(patch)) this.edited.delete(name);
    this.show();
    const said = Object.keys(patch).map((name) => {
      const field = this.form.elements[name];
      if (!field) return name === "paused" ? (patch.paused ? "learning is paused" : "learning goes on") : name;
      return `${label(field).toLowerCase()} ${this.inWords(field, this.settings.values[name])}`;
    });
    say(this.form, `In force: ${said.join(", ")}.`, "accepted");
    this.onChanged(said.join(", "));
  }

  async stale() {
    await this.reload();
    say(this.form, "Not changed: somebody else has changed these settings meanwhile. They have been "
      + "read again; look at them and apply yours once more.", "refused");
  }
}

async function writeCheckpoint(form) {
  const outcome = await send("POST", "/v1/checkpoints", { replay: form.elements.replay.checked });
  if (outcome.refused) say(form, `Not written. ${outcome.refused}`, "refused");
  else say(form, `Written: ${outcome.result.file}, after ${plain(outcome.result.updates)} updates.`, "accepted");
}

function startCheckpoint(form, onChanged) {
  const button = $("button", form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (button.ariaDisabled) return;
    button.ariaDisabled = "true";
    say(form, "Writing …");
    await writeCheckpoint(form);
    button.ariaDisabled = null;
    onChanged("checkpoint");
  });
}

// Gives a function that reads the settings again, where nobody is editing them.
export function startControls(onChanged) {
  const forms = all("form[data-settings]").map((form) => new SettingsForm(form, onChanged));
  startCheckpoint($("#checkpoint"), onChanged);
  return () => Promise.all(forms.map((form) => form.refresh()));
}
