/* The pair view: the query and one image side by side. */

/** What was found of an image, and what that rests on. */
function verdictLine(verdict) {
  if (!verdict) return "";
  if (!verdict.found) return "Resembles: no copy, and no part in common, was found.";
  const points = verdict.points ? `${plural(verdict.points, "point agrees", "points agree")} on one place, and ` : "";
  const whole = (part) => `${Math.round(100 * part)}\u00a0%`;
  return `${verdict.words[0].toUpperCase()}${verdict.words.slice(1)}. Outlined: what both have in common, ` +
    `${whole(verdict.of_query)} of the query and ${whole(verdict.of_image)} of the image. There ${points}` +
    `${whole(verdict.agreement)} of the detail agrees.`;
}

/** The query and one image, large: side by side, overlaid, or their difference, with one zoom for both. */
class Pair {
  /** act: openHelp(), neighbour(image, by) in the list, closed(image). */
  constructor(query, state, evidence, id, act) {
    Object.assign(this, { query, state, model: state.model, evidence, act, image: null });
    this.reset();
    this.mode = "side";
    this.mix = 0.5;
    this.heat = false;
    this.swapped = false;
    this.title = make("h2", { id });
    this.verdict = make("p", { className: "pt-verdict-line" });
    this.text = make("p", { className: "pt-quiet", "aria-live": "polite" });
    this.modes = choices("How to compare", [["side", "Side by side", "1"], ["overlay", "Overlay", "2"],
      ["difference", "Difference", "3"]], (mode) => this.set({ mode }));
    this.heatBox = make("input", { type: "checkbox" });
    this.heatBox.addEventListener("change", () => this.set({ heat: this.heatBox.checked }));
    this.heatLabel = make("label", { className: "pt-check", title: "Heat maps (H)" }, this.heatBox,
      make("span", {}, "Heat"));
    this.slider = make("input", { type: "range", min: 0, max: 100, value: 50,
      "aria-label": "From one picture to the other" });
    this.slider.addEventListener("input", () => this.set({ mix: this.slider.value / 100 }));
    this.ends = [make("span"), make("span")];
    this.mixing = make("label", { className: "pt-field" }, this.ends[0], this.slider, this.ends[1]);
    const swap = make("button", { type: "button", title: "Swap (X)" }, "Swap");
    swap.addEventListener("click", () => this.set({ swapped: !this.swapped }));
    const zooms = [["−", "Zoom out (-)", 1 / 1.5], ["+", "Zoom in (+)", 1.5]].map(([sign, title, factor]) => {
      const button = make("button", { type: "button", title, "aria-label": title }, sign);
      button.addEventListener("click", () => this.magnify(factor));
      return button;
    });
    const close = make("button", { type: "button", className: "pt-close", title: "Close (Escape)" }, "Close");
    close.addEventListener("click", () => this.dialog.close());
    this.panes = [0, 1].map(() => {
      const canvas = make("canvas", { tabIndex: 0, role: "img" }), caption = make("figcaption");
      this.listen(canvas);
      return { canvas, caption, figure: make("figure", {}, canvas, caption) };
    });
    this.scale = make("div");
    const bar = make("div", { className: "pt-bar" },
      this.modes.element, this.heatLabel, swap, make("div", { className: "pt-group", role: "group", "aria-label": "Zoom" }, ...zooms),
        this.mixing);
    this.dialog = make("dialog", { className: "pt-dialog pt-pair" },
      make("div", { className: "pt-top" }, this.title, close), this.verdict, bar,
      make("div", { className: "pt-panes" }, ...this.panes.map((pane) => pane.figure)), this.scale, this.text);
    this.dialog.setAttribute("aria-labelledby", this.title.id);
    this.dialog.addEventListener("keydown", (event) => this.key(event));
    this.dialog.addEventListener("close", () => act.closed(this.image));
  }

  reset() {
    Object.assign(this, { zoom: 1, cx: 0.5, cy: 0.5, spot: null });
  }

  open(image) {
    this.image = image;
    this.reset();
    this.maps = null;
    if (!this.dialog.open) this.dialog.showModal();
    this.draw();
    this.evidence.need([image]);
    this.load(image);
  }

  async load(image) {
    const { query, evidence } = this;
    try {
      const loaded = await Promise.all([loadPicture(query.frame), loadPicture(image.frame)]);
      const pixels = await Promise.all([evidence.pixels(query), evidence.pixels(image)]);
      if (image !== this.image) return;
      this.maps = { image, frames: loaded, greys: loaded.map(greyed), pixels };
    } catch {
      this.text.textContent = "The picture could not be loaded.";
    }
    this.prepare();
  }

  /** Heat maps and difference, once for an image and a selection. */
  prepare() {
    if (!this.maps || !this.dialog.open) return;
    const { height, width } = this.model, area = height * width, { pixels } = this.maps, { image } = this;
    if (image.maps) {
      this.maps.heat = [[this.query, this.model.parts([image])], [image, this.model.heatOf(image)]].map(([of, map]) => {
        const canvas = make("canvas");
        paintHeat(canvas, of.height, of.width, map);
        return { canvas };
      });
    }
    if (image.height !== height || image.width !== width) return this.draw();  // no pixel lies over another
    const canvas = make("canvas"), difference = new Float32Array(area);
    for (let i = 0; i < 3 * area; i++) difference[i % area] += Math.abs(pixels[0][i] - pixels[1][i]) / 6;
    paint(canvas, height, width, (i) => [...heatColour(difference[i]), 255]);
    this.maps.difference = { canvas, mean: total(difference) / area };
    this.draw();
  }

  set(changes) {
    Object.assign(this, changes);
    this.draw();
  }

  magnify(factor, x = 0.5, y = 0.5) {
    const zoom = Math.min(16, Math.max(1, this.zoom * factor));
    this.cx += (x - 0.5) * (1 / this.zoom - 1 / zoom);  // what is under the pointer stays there
    this.cy += (y - 0.5) * (1 / this.zoom - 1 / zoom);
    this.zoom = zoom;
    this.move(0, 0);
  }

  move(dx, dy) {
    const edge = 0.5 / this.zoom;
    this.cx = Math.min(1 - edge, Math.max(edge, this.cx + dx / this.zoom));
    this.cy = Math.min(1 - edge, Math.max(edge, this.cy + dy / this.zoom));
    this.draw();
  }

  listen(canvas) {
    let from = null;
    const place = (event) => {
      const rect = canvas.getBoundingClientRect();
      return [(event.clientX - rect.left) / rect.width, (event.clientY - rect.top) / rect.height];
    };
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.magnify(event.deltaY < 0 ? 1.2 : 1 / 1.2, ...place(event));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      from = place(event);
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      if (from) {
        this.move(from[0] - x, from[1] - y);
        from = [x, y];
      }
      this.spot = [this.cx + (x - 0.5) / this.zoom, this.cy + (y - 0.5) / this.zoom];
      this.draw();
    });
    canvas.addEventListener("pointerup", () => (from = null));
    canvas.addEventListener("pointerleave", () => this.set({ spot: null }));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const arrows = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] };
    const actions = {
      1: () => this.set({ mode: "side" }),
      2: () => this.set({ mode: "overlay" }),
      3: () => this.set({ mode: "difference" }),
      x: () => this.set({ swapped: !this.swapped }),
      h: () => this.set({ heat: !this.heat }),
      "+": () => this.magnify(1.5),
      "=": () => this.magnify(1.5),
      "-": () => this.magnify(1 / 1.5),
      0: () => { this.reset(); this.draw(); },
      n: () => this.open(this.act.neighbour(this.image, 1)),
      b: () => this.open(this.act.neighbour(this.image, -1)),
      "?": () => this.act.openHelp(),
    };
    const action = actions[event.key.toLowerCase()];
    if (action) action();
    else if (arrows[event.key] && event.target !== this.slider) this.move(...arrows[event.key]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  draw() {
    const { image, mode, state, maps, query } = this, both = [query, image], patches = this.model.steps.length > 0;
    this.title.textContent = `${shortName(query.id)} and ${shortName(image.id)}`;
    this.modes.draw(mode);
    this.heatBox.checked = this.heat;
    this.heatBox.disabled = mode === "difference" || !image.maps;
    this.heatLabel.hidden = !patches;
    this.verdict.textContent = verdictLine(image.verdict);
    this.mixing.hidden = mode !== "overlay";
    this.dialog.dataset.mode = mode;
    this.panes[1].figure.hidden = mode !== "side";
    const share = percent(state.share(image));
    const known = this.model.view.null, z = known && image.z != null
      ? ` Its z is ${image.z.toFixed(1)}; the largest of a ${known.kind === "controls" ? "control picture" : "member"} is usually ${known.usual_z.toFixed(1)}.` : "";
    const words = (patches ? `${shortName(image.id)} accounts for ${share} of ${state.selectionName()}${this.usual()}`
      : `${shortName(image.id)} has a share of ${share}.`) + z;
    const waiting = !patches || image.maps ? "" : image.failed ? " Its maps could not be loaded."
      : image.evidence ? " Loading its maps …" : state.pending ? " Its maps come with the last answer." : "";
    this.text.textContent = words + waiting;
    if (!maps || maps.image !== image) return;
    const order = this.swapped ? [1, 0] : [0, 1];
    this.panes.forEach(({ canvas, figure }, pane) => {
      const { width, height } = both[order[pane]];
      canvas.style.aspectRatio = `${width} / ${height}`;
      figure.style.setProperty("--pt-shape", width / height);
    });
    order.forEach((number, end) => { this.ends[end].textContent = number ? "Image" : "Query"; });
    const heat = this.heat && maps.heat;
    this.panes.forEach(({ canvas, caption }, pane) => {
      const which = order[pane], rect = canvas.getBoundingClientRect();
      if (!rect.width) return;
      const context = this.frame(canvas, rect);
      const layer = (number, alpha) => {
        context.globalAlpha = alpha;
        const shape = both[number];
        this.place(context, rect, (heat ? maps.greys : maps.frames)[number], shape);
        if (heat) this.place(context, rect, maps.heat[number].canvas, shape);
        context.globalAlpha = 1;
      };
      if (mode === "side") {
        layer(which, 1);
        const captions = heat ? [`${query.id}: what this image accounts for`,
          `${image.id}: where it does the explaining`] : [query.id, image.id];
        caption.textContent = captions[which];
      } else if (mode === "overlay") {
        layer(order[0], 1);
        layer(order[1], this.mix);
        const [below, above] = order.map((number) => shortName(both[number].id));
        caption.textContent = `${above}, ${Math.round(this.mix * 100)} %, over ${below}`;
      } else if (!maps.difference) {
        caption.textContent = "The two pictures have different shapes: there is no difference of their pixels";
      } else {
        this.place(context, rect, maps.difference.canvas, query);
        const mean = percent(maps.difference.mean);
        const what = this.model.view.latents ? "the pictures, a square for each latent" : "the pixels as compared";
        caption.textContent = `Difference of ${what}: ${mean} of full range on average`;
      }
      canvas.setAttribute("aria-label", caption.textContent);
      const on = mode === "side" ? which : order[0];
      if (mode !== "difference" && image.verdict?.found) outlinePolygon(context, this.full(rect),
        on ? image.verdict.in_image : image.verdict.in_query);
      this.mark(context, rect, mode === "side" ? which : 0);
    });
    this.scale.replaceChildren(mode === "difference" ? legend("Difference", "none", "full range")
      : heat ? heatLegend("Heat: the part of each pixel of the query that this image accounts for, and which of its pixels do that") : "");
  }

  /** What is usual beside what is: the other images of the list. */
  usual() {
    const { image, model, state } = this;
    if (!image.maps) return ".";
    const others = state.loaded().filter((other) => other !== image);
    const own = `, and for at most ${percent(model.mostOf(image))} of a pixel.`;
    if (!others.length) return own;
    const mean = (values) => percent(total(values) / values.length);
    const names = others.length === 1 ? "The other image listed has" : `The ${others.length} others listed have`;
    return `${own} ${names} ${mean(others.map((other) => state.share(other) ?? 0))} and ` +
      `${mean(others.map((other) => model.mostOf(other)))}${others.length === 1 ? "" : " in the mean"}.`;
  }

  /** The rectangle of the whole picture on a canvas, at this zoom. */
  full({ width, height }) {
    return { left: width / 2 - this.cx * width * this.zoom, top: height / 2 - this.cy * height * this.zoom,
      width: width * this.zoom, height: height * this.zoom };
  }

  frame(canvas, rect) {
    const ratio = devicePixelRatio || 1, context = canvas.getContext("2d");
    canvas.width = Math.round(rect.width * ratio);
    canvas.height = Math.round(rect.height * ratio);
    context.setTransform(canvas.width / rect.width, 0, 0, canvas.height / rect.height, 0, 0);
    return context;
  }

  /** Draw a picture as large as its shape allows, in the middle. */
  place(context, rect, picture, shape) {
    const full = this.full(rect), scale = Math.min(full.width / shape.width, full.height / shape.height);
    // a pane has the shape of a picture to a pixel of the screen: that is filled
    const [width, height] = [scale * shape.width, scale * shape.height].map((side, i) =>
      Math.abs(side - [full.width, full.height][i]) < 2 * this.zoom ? [full.width, full.height][i] : side);
    context.imageSmoothingEnabled = picture.width > width;
    context.drawImage(picture, full.left + (full.width - width) / 2, full.top + (full.height - height) / 2, width, height);
  }

  /** The patch under the pointer, and its best partner in the image. */
  mark(context, rect, which) {
    const { model, image, spot } = this;
    if (!spot || !image.maps) return;
    const s = model.lead(), step = model.steps[s];
    if (!step) return;
    const { r, c, k } = model.patchAt(step, Math.floor(spot[1] * model.height), Math.floor(spot[0] * model.width));
    const box = which ? model.partner(s, image, k).box : model.box(step, r, c), shape = which ? image : model;
    outline(context, within(this.full(rect), box, shape.height, shape.width), which ? ACCENT : "#fff", 2);
  }
}
