// A limit that the reader moves, or lifts: a logarithmic slider, a box "no limit" beside it, and its value in words.

const PLACES = 1000;
/** A slider goes from this part of its largest value to the whole of it. */
const SPAN = 30;
/** How far it goes beyond what was asked, and what was measured. */
const BEYOND = 1.5;

export class Slider {
  /**
   * name: the id of the input; "no-" and the name is the box. from: the value at first, as text; "" is no limit.
   * most, least: the largest value measured, and the least that the slider's end may be. text: makes words of a value.
   */
  constructor(name, { from, most, least, text, none = "no limit" }) {
    this.input = document.getElementById(name);
    this.lifted = document.getElementById(`no-${name}`);
    this.out = document.querySelector(`output[for="${name}"]`);
    this.asked = from === "" ? null : Number(from);
    this.most = BEYOND * Math.max(this.asked ?? 0, Number(most), least);
    this.text = text;
    this.none = none;
    this.exact = null;
  }

  /** The limit; null is none. A value that was set is kept exactly, although the slider has steps. */
  get value() {
    if (this.lifted.checked) return null;
    return this.exact ?? this.most * SPAN ** (Number(this.input.value) / PLACES - 1);
  }

  set(amount) {
    this.lifted.checked = amount === null;
    this.exact = amount;
    if (amount !== null) this.input.value = String(Math.round(PLACES * (1 + Math.log(amount / this.most) / Math.log(SPAN))));
    this.show();
  }

  reset() { this.set(this.asked); }

  show() {
    const words = this.value === null ? this.none : this.text(this.value);
    this.out.textContent = words;
    this.input.setAttribute("aria-valuetext", words);
    this.input.classList.toggle("off", this.lifted.checked);
  }

  /** `then` is called whenever the reader has moved it. */
  onChange(then) {
    this.input.addEventListener("input", () => { this.exact = null; this.lifted.checked = false; this.show(); then(); });
    this.lifted.addEventListener("change", () => { this.show(); then(); });
  }
}
