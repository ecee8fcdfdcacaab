/* The patch under the pointer: outlined with its partners over the whole window, and described beside the query. */

const MOST_LINES = 12;

/** The text and the two patches beside the query. */
class PatchPanel {
  /** act: pixels(entry) and picture(source), null until they are there; say(words) to screen readers. */
  constructor(query, model, state, act) {
    Object.assign(this, { query, model, state, act, described: null });
    this.insets = ["query patch, noised", "best patch, scaled"].map((label) => {
      const canvas = make("canvas", { className: "pt-inset", role: "img", "aria-label": label, width: 8, height: 8 });
      return { canvas, caption: make("figcaption", {}, label) };
    });
    this.text = make("div", { className: "pt-panel-text" });
    this.insetRow = make("div", { className: "pt-insets", hidden: true },
      ...this.insets.map(({ canvas, caption }) => make("figure", {}, canvas, caption)));
    this.element = make("div", { className: "pt-panel" }, this.insetRow, this.text);
  }

  draw(found) {
    this.insetRow.hidden = !found;
    if (!found) {
      const words = this.state.region ? "Drag again for another region. Escape clears it."
        : this.state.pending ? "Heat maps and patches to point at come with the last answer."
          : !this.state.evident() ? ""
            : "Move over the picture to see which patches are most like it, or drag to select a region. Keys: press ?";
      if (this.described === words) return;
      this.described = words;
      this.text.replaceChildren(make("p", { className: "pt-quiet" }, words));
      return;
    }
    const { s, step, patch, pair } = found, { image, whole, part } = pair, model = this.model;
    const key = [s, patch.k, image.index, Boolean(image.values)].join();
    if (this.described === key) return;
    this.described = key;
    const place = levelName(model.levels.findIndex((level) => level.place === step.level), model.levels.length);
    const line = `${percent(whole)} of this patch, ${percent(part)} by its best patch alone`;
    const pooled = step.pool > 1 ? `, pooled ${step.pool} × ${step.pool}` : "";
    this.text.replaceChildren(make("p", {}, make("strong", {}, shortName(image.id)), " accounts for ", line,
      "."),
      make("p", { className: "pt-quiet" },
        `Row ${patch.r + 1}, column ${patch.c + 1}; its row ${pair.row + 1}, column ${pair.column + 1}` +
        `${viewed(pair.crop)}. ` +
        `${step.extent} × ${step.extent} ${this.unit(step)}${pooled}, t = ${step.t}${place ? `, ${place}` : ""}.`));
    this.act.say(`Row ${patch.r + 1}, column ${patch.c + 1}: ${shortName(image.id)} accounts for ${line}`);
    if (model.view.latents) return this.drawParts(step, patch, pair, key);
    const own = this.act.pixels(this.query), theirs = this.act.pixels(image);
    this.described = own && theirs ? key : null;
    const { height, width } = image;
    if (own && theirs) this.drawInsets(
      model.compared(own, s, patch.r, patch.c, { height: model.height, width: model.width, noised: true }),
      model.compared(seen(theirs, pair.crop, height, width), s, pair.row, pair.column, { height, width }));
  }

  unit(step) {
    const { latents } = this.model.view, side = latents && latents.factor * step.extent;
    return latents ? `latents (${side} × ${side} pixels)` : "pixels";
  }

  /** Latents are shown as parts of pictures: the query as the decoder sees it under noise, and the image. */
  drawParts(step, patch, pair, key) {
    const { model } = this, { picture } = model.view.levels[step.level];
    const sources = [picture || this.query.frame, pair.image.frame];
    const found = sources.map((source) => this.act.picture(source));
    this.insets[0].caption.textContent = picture ? "query patch, noised and decoded" : "query patch, without its noise";
    this.insets[1].caption.textContent = "best patch";
    this.described = found.every(Boolean) ? key : null;
    if (!this.described) return;
    const boxes = [model.box(step, patch.r, patch.c), pair.box];
    const sizes = [model, pair.image];
    found.forEach((image, i) => paintPart(this.insets[i].canvas, image, boxes[i], sizes[i].height, sizes[i].width));
  }

  drawInsets(...patches) {
    const reach = patches.reduce((most, { values }) => values.reduce((a, b) => (Math.abs(b) > a ? Math.abs(b) : a),
      most), 0.25);
    patches.forEach(({ side, values }, i) => {
      const area = side * side;
      paint(this.insets[i].canvas, side, side, (k) => Number.isNaN(values[k]) ? [0, 0, 0, 0]
        : [0, 1, 2].map((ch) => 127.5 * (values[ch * area + k] / reach + 1)).concat(255));
    });
  }
}

/** Region, patch, partners and lines, on one canvas as large as the window. */
class Overlay {
  constructor(root, query, model, state, panel) {
    Object.assign(this, { root, query, model, state, panel, rects: null });
    this.canvas = make("canvas", { className: "pt-overlay", role: "presentation" });
  }

  /** Something may have moved: measure again before drawing. */
  relayout() {
    this.rects = null;
  }

  measure() {
    this.rects ||= { query: this.query.getBoundingClientRect(),
      tiles: new Map(this.state.images.map((image) => [image, image.holder.getBoundingClientRect()])) };
    return this.rects;
  }

  draw() {
    this.root.classList.toggle("pt-pointing",
      Boolean(this.state.cursor && !this.state.focus));  // patches are seen without the map
    const { canvas: overlay, model, state } = this, { region, cursor, focus } = state, ratio = devicePixelRatio || 1,
      { innerWidth: w, innerHeight: h } = window;
    if (overlay.width !== Math.round(w * ratio) || overlay.height !== Math.round(h * ratio)) {
      overlay.width = Math.round(w * ratio);
      overlay.height = Math.round(h * ratio);
    }
    const context = overlay.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, w, h);
    const { query, tiles } = this.measure();
    if (region) {
      const box = within(query, { ...region, y1: region.y1 + 1, x1: region.x1 + 1 }, model.height, model.width);
      context.fillStyle = "rgba(0,0,0,.5)";
      context.beginPath();
      context.rect(query.left, query.top, query.width, query.height);
      context.rect(box.x, box.y, box.w, box.h);
      context.fill("evenodd");
      outline(context, box, "#fff", 2);
    }
    const images = state.loaded().filter((image) => image.item.isConnected), s = cursor && images.length ? model.lead() : -1;
    if (s < 0) return this.panel.draw(null);
    const step = model.steps[s], patch = model.patchAt(step, cursor.y, cursor.x);
    const from = within(query, model.box(step, patch.r, patch.c), model.height, model.width);
    const pairs = images.map((image) => {
      const { part } = image.partners[s], grid = image.grids[s], best = model.partner(s, image, patch.k);
      return { image, ...best, whole: grid.data[patch.k] * grid.scale, part: part.data[patch.k] * part.scale,
        to: within(tiles.get(image), best.box, image.height, image.width) };
    }).sort((a, b) => b.whole - a.whole);
    const most = pairs[0].whole || 1, shown = focus && pairs.find((pair) => pair.image === focus);
    for (const { image, to, whole } of pairs) this.drawPartner(context, tiles.get(image), to, whole, whole / most);
    this.drawLines(context, from, pairs.filter((pair, i) => pair === shown ||
      (!shown && i < MOST_LINES && pair.whole > 0.03 * most && pair.to.y > 0 && pair.to.y < h)), most);
    outline(context, from, "#fff", 2.5);
    return this.panel.draw({ s, step, patch, pair: shown || pairs[0] });
  }

  drawLines(context, from, pairs, most) {
    const stacked = getComputedStyle(this.root).getPropertyValue("--pt-stacked").trim() === "1";
    context.strokeStyle = ACCENT;
    for (const { whole, to } of [...pairs].reverse()) {
      const x0 = from.x + (stacked ? from.w / 2 : from.w), y0 = from.y + (stacked ? from.h : from.h / 2);
      const x1 = stacked ? to.x + to.w / 2 : to.x, y1 = stacked ? to.y : to.y + to.h / 2,
        bend = (stacked ? y1 - y0 : x1 - x0) * 0.45;
      context.globalAlpha = 0.25 + 0.65 * (whole / most);
      context.lineWidth = 1 + 3 * (whole / most);
      context.beginPath();
      context.moveTo(x0, y0);
      if (stacked) context.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
      else context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  /** One training image: all but the partner dimmed, and how much of the query patch the image accounts for. */
  drawPartner(context, tile, to, whole, strength) {
    if (tile.bottom < 0 || tile.top > innerHeight) return;
    context.fillStyle = `rgba(10,12,16,${0.55 - 0.1 * strength})`;
    context.beginPath();
    context.rect(tile.left, tile.top, tile.width, tile.height);
    context.rect(to.x, to.y, to.w, to.h);
    context.fill("evenodd");
    outline(context, to, ACCENT, 1 + 1.5 * strength);
    const words = percent(whole);
    context.font = "600 12px system-ui, sans-serif";
    const wide = context.measureText(words).width + 10;
    context.fillStyle = "rgba(10,12,16,.8)";
    context.fillRect(tile.left, tile.top, wide, 20);
    context.fillStyle = strength > 0.03 ? "#fff" : "#b9bec6";
    context.fillText(words, tile.left + 5, tile.top + 14);
  }
}
