/* The parts of the page. */

class Parts {
  name(part) {
    return `pt-${this.number}-${part}`;
  }

  // -- parts of the page

  build(facts) {
    const { view } = this, { query, summary } = view;
    this.frame = make("img", { className: "pt-frame", src: query.frame, alt: `The query ${query.id}`,
      draggable: false });
    this.map = make("canvas", { className: "pt-map", role: "presentation" });
    this.mapNote = make("p", { className: "pt-quiet" });
    this.legend = make("div", { className: "pt-legends" });
    this.query = make("div", { className: "pt-query", tabIndex: 0, role: "application" }, this.frame, this.map);
    this.query.setAttribute("aria-label",
      `The query ${query.id}, ${query.width} by ${query.height} pixels. Arrow keys move over its patches.`);
    this.query.style.aspectRatio = `${query.width} / ${query.height}`;
    this.live = make("p", { className: "pt-hidden", role: "status", "aria-live": "polite" });
    this.panel = this.buildPanel();
    this.heading = make("h2", { id: this.name("ranking") }, "Resembles most");
    this.subtitle = make("p", { className: "pt-quiet pt-subtitle" });
    this.clearButton = make("button", { type: "button", className: "pt-small", title: "Clear (Escape)",
      hidden: true }, "Clear region");
    this.clearButton.addEventListener("click", () => this.clear());
    this.list = make("ul", { className: "pt-list" });
    this.list.setAttribute("aria-labelledby", this.heading.id);
    this.images.forEach((image) => this.list.append(this.buildTile(image)));
    if (this.images.length) this.images[0].tile.tabIndex = 0;
    this.overlay = make("canvas", { className: "pt-overlay", role: "presentation" });
    this.pair = new Pair(this);
    this.help = this.buildHelp();
    const lead = make("div", { className: summary.stands_out ? "pt-lead" : "pt-lead pt-nothing" },
      ...this.headline());
    const stage = make("div", { className: "pt-stage" },
      make("section", { className: "pt-left", "aria-label": "The query" }, this.query, this.legend, this.mapNote,
        this.panel),
      make("section", { className: "pt-right", "aria-label": "The images it resembles most" },
        make("div", { className: "pt-heading" }, this.heading, this.clearButton), this.subtitle, this.list));
    const foot = make("div", { className: "pt-foot" }, this.buildCoverage(), this.buildMeaning(),
      this.buildOpponents());
    this.root = make("div", { className: "patchtrace pt-viewer" }, facts ? this.buildFacts() : null, lead,
      this.buildBar(), stage, foot,
      this.live, this.overlay, this.pair.dialog, this.help);
    this.element.replaceChildren(this.root);
  }

  buildFacts() {
    const { facts, query } = this.view, brief = facts.filter(([, value]) => value.length <= BRIEF),
      rest = facts.filter(([, value]) => value.length > BRIEF);
    const list = (rows) => make("dl", { className: "pt-facts" },
      ...rows.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
    return make("header", { className: "pt-header" }, make("h1", {}, `What ${shortName(query.id)} resembles`),
      list(brief),
      rest.length ? make("details", { className: "pt-more" }, make("summary", {}, "More facts"), list(rest)) : null);
  }

  headline() {
    const { summary } = this.view, first = this.images[0];
    if (!first) return [make("p", {}, "There are no images to show.")];
    const copies = this.images.flatMap((image) => image.copies || []);
    const together = percent(total([...this.images, ...copies].map((image) => image.share)));
    const spreadOver = Math.round(summary.effective_sources).toLocaleString("en");
    if (!summary.stands_out) {
      const words = `The shares are spread as widely as over ${spreadOver} equal images, of ` +
        `${summary.images.toLocaleString("en")}. The first accounts for ${percent(first.share)}; an even spread ` +
        `would give each ${percent(1 / summary.images)}. Read the ranking below as a weak hint at most.`;
      return [make("h2", {}, "Nothing stands out"), make("p", {}, words)];
    }
    const others = copies.length ? " and their near-duplicates" : "";
    const count = this.images.length;
    const shown = count > 1 ? `the ${count} images shown${others} together for ${together}, ` : "";
    const words = ` accounts for ${percent(first.share)} of the picture, ${shown}of ` +
      `${plural(summary.images, "image", "images")} compared. The shares are spread as widely as over ` +
      `${spreadOver} equal images. `;
    const settled = summary.settled ? make("span", { className: "pt-quiet" }, `${summary.settled}.`) : "";
    return [make("p", {}, make("strong", {}, shortName(first.id)), words, settled)];
  }

  buildBar() {
    const { levels, steps } = this.model, count = levels.length;
    this.slider = make("input", { type: "range", min: 0, max: count, step: 1, value: 0, disabled: !count,
      id: this.name("level") });
    this.slider.addEventListener("input", () => this.choose(Number(this.slider.value), this.scale));
    this.sliderText = make("output", { className: "pt-output", htmlFor: this.slider.id });
    this.select = make("select", { disabled: new Set(steps.map((step) => step.pool === 1)).size < 2 },
      ...[["all", "all scales"], ["full", "full"], ["pooled", "pooled"]]
        .map(([value, text]) => make("option", { value }, text)));
    this.select.addEventListener("change", () => this.choose(this.level, this.select.value));
    this.heatButton = toggle("Heat", "H", true, () => this.flip("heat"));
    this.mosaicButton = toggle("Mosaic", "M", false, () => this.flip("mosaic"));
    this.pixelButton = toggle("As compared", "P", false, () => this.flip("asCompared"));
    this.mosaicButton.disabled = !this.view.mosaic;
    const theme = make("button", { type: "button", title: "Dark or light (D)", className: "pt-plain" },
      "Dark or light");
    theme.addEventListener("click", () => this.theme());
    const help = make("button", { type: "button", title: "Keys (?)", className: "pt-plain", "aria-label": "Keys" },
      "?");
    help.addEventListener("click", () => this.help.showModal());
    const range = make("span", { className: "pt-range" }, this.slider,
      make("span", { className: "pt-ends", "aria-hidden": "true" }, make("span", {}, "all"),
        make("span", {}, count > 1 ? "fine detail … composition" : "")));
    return make("div", { className: "pt-bar", role: "group", "aria-label": "Settings" },
      make("div", { className: "pt-level" }, make("label", { htmlFor: this.slider.id }, "Noise level"),
        this.sliderText, range),
      make("label", { className: "pt-field" }, "Scale", this.select),
      make("div", { className: "pt-group", role: "group", "aria-label": "Show" }, this.heatButton, this.mosaicButton,
        this.pixelButton),
      make("span", { className: "pt-push" }, theme, help));
  }

  buildPanel() {
    this.insets = ["query patch, noised", "best patch, scaled"].map((label) => {
      const canvas = make("canvas", { className: "pt-inset", role: "img", "aria-label": label, width: 8, height: 8 });
      return { canvas, caption: make("figcaption", {}, label) };
    });
    this.panelText = make("div", { className: "pt-panel-text" });
    this.insetRow = make("div", { className: "pt-insets", hidden: true },
      ...this.insets.map(({ canvas, caption }) => make("figure", {}, canvas, caption)));
    return make("div", { className: "pt-panel" }, this.insetRow, this.panelText);
  }

  buildTile(image) {
    const parts = {
      picture: make("img", { src: image.frame, alt: `Image ${image.id}`, draggable: false, decoding: "async" }),
      share: make("strong", { className: "pt-num" }), error: make("span", { className: "pt-error pt-num" }),
      mark: make("span", { className: "pt-mark" }), fill: make("span", { className: "pt-fill" }),
        whisker: make("span", { className: "pt-whisker" }),
      rank: make("span", { className: "pt-rank pt-num" }),
    };
    image.holder = make("span", { className: "pt-picture" }, parts.picture);
    image.holder.style.aspectRatio = `${this.model.width} / ${this.model.height}`;
    image.tile = make("button", { type: "button", className: "pt-tile", tabIndex: -1, title: image.id }, image.holder,
      make("span", { className: "pt-caption", "aria-hidden": "true" }, parts.rank, parts.share, parts.error,
        parts.mark),
      make("span", { className: "pt-measure" }, parts.fill, parts.whisker),
        make("span", { className: "pt-id", "aria-hidden": "true" }, shortName(image.id)));
    image.parts = parts;
    const enter = () => this.attend(image), leave = () => this.attend(null);
    image.tile.addEventListener("pointerenter", enter);
    image.tile.addEventListener("pointerleave", leave);
    image.tile.addEventListener("focus", () => {
      this.rove(image);
      enter();
    });
    image.tile.addEventListener("blur", leave);
    image.tile.addEventListener("click", () => this.pair.open(image));
    parts.picture.addEventListener("load", () => this.relayout());
    image.item = make("li", { className: "pt-item" }, image.tile);
    if (image.copies && image.copies.length) {
      const rows = make("ul", { className: "pt-copies", hidden: true }, ...image.copies.map((copy) =>
        make("li", {}, make("span", { title: copy.id }, shortName(copy.id)), " ",
          make("span", { className: "pt-num" }, percent(copy.share)))));
      const text = `+${image.copies.length} near-duplicate${image.copies.length > 1 ? "s" : ""}`;
      const fold = make("button", { type: "button", className: "pt-fold", "aria-expanded": "false" }, text);
      fold.addEventListener("click", () => {
        rows.hidden = !rows.hidden;
        fold.setAttribute("aria-expanded", String(!rows.hidden));
        this.relayout();
      });
      image.item.append(fold, rows);
    }
    return image.item;
  }

  buildHelp() {
    const close = make("button", { type: "button", className: "pt-close" }, "Close");
    const dialog = make("dialog", { className: "pt-dialog pt-help", "aria-label": "Keys" },
      make("div", { className: "pt-top" }, make("h2", {}, "Keys"), close), keyTable(KEYS),
        make("h3", {}, "With an image open"), keyTable(PAIR_KEYS));
    close.addEventListener("click", () => dialog.close());
    dialog.addEventListener("keydown", (event) => event.stopPropagation());
    return dialog;
  }

  buildCoverage() {
    const points = this.view.summary.coverage || [];
    if (points.length < 2) return null;
    const [w, h, left, bottom] = [300, 136, 44, 24], most = Math.log(points[points.length - 1][0]) || 1;
    const x = (n) => left + (Math.log(n) / most) * (w - left - 14), y = (v) => 10 + (1 - v) * (h - bottom - 10);
    const text = (px, py, anchor, words) => makeSvg("text", { x: px, y: py, "text-anchor": anchor }, words);
    const words = points.map(([n, share]) =>
      `the first ${n.toLocaleString("en")} account for ${percent(share)}`).join("; ");
    const ticks = points.filter(([n], i) => i === 0 || i === points.length - 1 ||
      (n === 10 && x(n) - left > 40 && w - x(n) > 60));
    const svg = makeSvg("svg", { viewBox: `0 0 ${w} ${h}`, class: "pt-plot", role: "img",
      "aria-label": `Coverage: ${words}` },
      ...[0, 0.5, 1].flatMap((v) => [makeSvg("line", { x1: left, x2: w - 14, y1: y(v), y2: y(v), class: "pt-grid" }),
        text(left - 6, y(v) + 3.5, "end", `${v * 100}\u00a0%`)]),
      ...ticks.map(([n], i) => text(x(n), h - 7, i === 0 ? "start" : i === ticks.length - 1 ? "end" : "middle",
        n.toLocaleString("en"))),
      makeSvg("polyline", { points: points.map(([n, share]) => `${x(n)},${y(share)}`).join(" "), class: "pt-curve" }),
      ...points.map(([n, share]) => makeSvg("circle", { cx: x(n), cy: y(share), r: 2.8, class: "pt-dot" },
        makeSvg("title", {}, `the first ${n}: ${percent(share)}`))));
    return make("section", {}, make("h3", {}, "How much the first images cover"), svg,
      make("p", { className: "pt-quiet" },
      "Share of the first n images together; n grows to the right, by factors."));
  }

  buildMeaning() {
    return make("section", {}, make("h3", {}, "What a share means"),
      make("p", {}, "The picture and the images are compared patch by patch, under noise. A share of 5 % says: of " +
        "the weight of all patches of the picture, 5 % falls on patches of this image, in competition with all " +
        "others in the collection."),
      make("p", {}, "It says how much the picture resembles the image. It does not say that a model was trained on " +
        "it, or why they are alike; and where nothing is alike, the shares still have to go somewhere."));
  }

  buildOpponents() {
    const { opponents } = this.view;
    if (!opponents || !opponents.length) return null;
    return make("section", {}, make("h3", {}, "For contrast: the smallest shares"),
      make("ul", { className: "pt-opponents" }, ...opponents.map((image) =>
      make("li", {}, make("img", { src: image.frame, alt: `Image ${image.id}`, decoding: "async" }),
        make("span", { className: "pt-num" }, percent(image.share)),
        make("span", { className: "pt-id", title: image.id }, shortName(image.id))))));
  }
}
