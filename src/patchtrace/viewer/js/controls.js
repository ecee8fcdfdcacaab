/* The bar above the query: noise level, scale, what is shown. */

const SCALES = ["all", "full", "pooled"];

class Controls {
  constructor(model, state, id, { switchTheme, openHelp }) {
    Object.assign(this, { model, state });
    const { levels, steps } = model, count = levels.length, patches = steps.length > 0;
    const scales = new Set(steps.map((step) => step.pool === 1)).size;
    const button = (title, label, act, more = {}) => {
      const made = make("button", { type: "button", title, className: "pt-plain", ...more }, label);
      made.addEventListener("click", act);
      return made;
    };
    this.slider = make("input", { type: "range", min: 0, max: count, step: 1, value: 0, id });
    this.slider.addEventListener("input", () => state.choose(Number(this.slider.value), state.scale));
    this.sliderText = make("output", { className: "pt-output", htmlFor: id });
    this.select = make("select", {},
      ...[["all", "all scales"], ["full", "full"], ["pooled", "pooled"]]
        .map(([value, text]) => make("option", { value }, text)));
    this.select.addEventListener("change", () => state.choose(state.level, this.select.value));
    this.over = choices("Over the picture", [["nothing", "Picture", "Escape"], ["heat", "Heat", "H"],
      ["mosaic", "Mosaic", "M"]], (value) => state.lay(value));
    this.mosaic = this.over.inputs[2];
    this.asCompared = make("input", { type: "checkbox" });
    this.asCompared.addEventListener("change", () => state.showAsCompared(this.asCompared.checked));
    const range = make("span", { className: "pt-range" }, this.slider,
      make("span", { className: "pt-ends", "aria-hidden": "true" }, make("span", {}, "all"),
        make("span", {}, count > 1 ? "fine detail … composition" : "")));
    this.element = make("div", { className: "pt-bar", role: "group", "aria-label": "Settings" },
      patches ? make("div", { className: "pt-level" }, make("label", { htmlFor: id }, "Noise level"), this.sliderText,
        range) : null,
      scales > 1 ? make("label", { className: "pt-field" }, "Scale", this.select) : null,
      patches ? this.over.element : null,
      make("label", { className: "pt-check", title: "The pixels as compared (P)" }, this.asCompared,
        make("span", {}, "As compared")),
      make("span", { className: "pt-push" }, button("Dark or light (D)", "Dark or light", switchTheme),
        button("Keys (?)", "?", openHelp, { "aria-label": "Keys" })));
    this.draw();
  }

  /** Only what there is evidence for can be chosen. */
  allow(mosaic) {
    const { levels, steps } = this.model, evident = this.state.evident();
    this.slider.disabled = !levels.length || !evident;
    this.select.disabled = new Set(steps.map((step) => step.pool === 1)).size < 2 || !evident;
    this.mosaic.disabled = !mosaic;
    this.over.inputs[1].disabled = !evident;
  }

  nextScale() {
    const { level, scale } = this.state;
    if (!this.select.disabled) this.state.choose(level, SCALES[(SCALES.indexOf(scale) + 1) % SCALES.length]);
  }

  draw() {
    const { state } = this;
    this.slider.value = state.level;
    this.select.value = state.scale;
    this.sliderText.textContent = state.levelText();
    this.slider.setAttribute("aria-valuetext", state.levelText());
    this.over.draw(state.over);
    this.asCompared.checked = state.asCompared;
  }
}
