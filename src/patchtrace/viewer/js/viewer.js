/* The viewer: what is drawn, and how it is mounted. */

let mounted = 0;

class Interface extends Acting {
  constructor(element, view, { facts = true } = {}) {
    super();
    Object.assign(this, { element, number: ++mounted, model: new Model(view), timings: [],
      gone: new AbortController() });
    this.view = { ...view, query: { ...view.query } };  // the view stays as it was given
    this.images = view.images.map((image) => ({ ...image }));
    Object.assign(this, { level: 0, scale: "all", cursor: null, pinned: false, region: null, focus: null });
    Object.assign(this, { heat: true, mosaic: false, asCompared: false, queue: [], loading: 0, dirty: new Set(),
      rects: null });
    this.pictures = new Map();
    this.build(facts);
    this.listen();
    this.remap();
    this.rank();
    if (this.images.every((image) => typeof image.evidence !== "string")) this.need(this.images);
    else this.note();
  }

  // -- drawing: what changed is drawn in the next frame, and only that

  redraw(...parts) {
    parts.forEach((part) => this.dirty.add(part));
    if (this.waiting || this.gone.signal.aborted) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      const parts = new Set(this.dirty), start = performance.now();
      this.dirty.clear();
      if (parts.has("map")) this.remap();
      if (parts.has("list")) this.rank();
      if (parts.has("overlay")) this.draw();
      if (parts.size === 1 && parts.has("overlay") && this.cursor) this.timings.push(performance.now() - start);
    });
  }

  relayout() {
    this.rects = null;
    const sharp = this.frame.naturalWidth && this.frame.naturalWidth <= this.query.clientWidth;
    this.frame.classList.toggle("pt-pixels", Boolean(sharp));
    this.redraw("overlay");
  }

  loaded() {
    return this.images.filter((image) => image.maps);
  }

  selectionName() {
    const { levels } = this.model, words = [];
    if (this.level) words.push(`at ${this.levelText()}`);
    if (this.scale !== "all") words.push(`${this.scale === "full" ? "full" : "pooled"} scale only`);
    const where = this.region ? "the region" : "the picture";
    return words.length && levels.length ? `${where}, ${words.join(", ")}` : where;
  }

  levelText() {
    if (!this.level) return "all levels";
    const { levels } = this.model, name = levelName(this.level - 1, levels.length);
    return `t = ${levels[this.level - 1].t}${name ? `, ${name}` : ""}`;
  }

  /** The query's map: what the image under focus accounts for, or all shown together; or the mosaic. */
  remap() {
    const { model, focus } = this, { height, width } = model;
    for (const [button, on] of [[this.heatButton, this.heat && !this.mosaic], [this.mosaicButton, this.mosaic],
      [this.pixelButton, this.asCompared]]) {
      button.setAttribute("aria-pressed", on);
    }
    const source = this.asCompared ? this.view.query.pixels : this.view.query.frame;
    if (this.frame.getAttribute("src") !== source) this.frame.src = source;
    this.sliderText.textContent = this.levelText();
    this.slider.setAttribute("aria-valuetext", this.levelText());
    this.root.classList.toggle("pt-with-mosaic", this.mosaic);
    this.note();
    this.map.hidden = false;
    this.root.classList.toggle("pt-with-heat", !this.mosaic);
    if (this.mosaic) return this.drawMosaic();
    for (const image of this.images) image.tile.style.removeProperty("--pt-owner");
    const images = focus ? [focus].filter((image) => image.maps) : this.loaded();
    if (!this.heat || !images.length || !model.chosen.length) {
      this.map.hidden = true;
      this.root.classList.remove("pt-with-heat");
      this.legend.replaceChildren();
      return undefined;
    }
    const most = paintHeat(this.map, height, width, model.parts(images));
    const label = focus ? `Part of each pixel that ${shortName(focus.id)} accounts for`
      : "Part of each pixel that the images shown account for";
    this.legend.replaceChildren(legend(label, "0 %", percent(most)));
    return undefined;
  }

  note() {
    const failed = this.images.filter((image) => image.failed).length,
      left = this.images.filter((image) => image.asked && !image.maps).length - failed;
    const empty = this.model.steps.length && !this.model.chosen.length;
    const idle = this.model.steps.length && !this.loaded().length && !left && !failed;
    this.mapNote.textContent = empty ? "Nothing was compared at this level and scale." : left
      ? `Loading maps: ${left} to go`
      : failed ? `${plural(failed, "map", "maps")} could not be loaded.` : idle
        ? "Point at the picture or an image to load the maps." : "";
  }

  drawMosaic() {
    const { model, view, focus } = this, { height, width } = model;
    this.owner ||= unpack(view.mosaic.owner).data;
    this.ownerPart ||= unpack(view.mosaic.part);
    const counts = new Map();
    for (const place of this.owner) counts.set(place, (counts.get(place) || 0) + 1);
    const owners = [...counts.keys()].filter((place) => place < this.images.length).sort((a, b) =>
      counts.get(b) - counts.get(a));
    const colours = new Map(owners.map((place, i) => [place, SOURCES[i] || LISTED]));
    const { data, scale } = this.ownerPart, most = data.reduce((a, b) => Math.max(a, b), 1);
    paint(this.map, height, width, (i) => {
      const faded = focus && this.images[this.owner[i]] !== focus ? 0.12 : 1;
      return [...(colours.get(this.owner[i]) || OTHER), 255 * faded * (0.15 + (0.85 * data[i]) / most)];
    });
    const css = (colour) => `rgb(${colour.join(" ")})`, area = height * width;
    const entry = (colour, words, image) => {
      const swatch = make("span", { className: "pt-swatch" });
      swatch.style.background = css(colour);
      return make("li", {}, swatch, image ? make("img", { src: image.frame, alt: "" }) : null,
        make("span", {}, words));
    };
    const few = owners.slice(0, SOURCES.length), rest = owners.slice(SOURCES.length), other = counts.get(65535) || 0;
    const further = total(rest.map((place) => counts.get(place)));
    this.images.forEach((image, place) => image.tile.style.setProperty("--pt-owner", colours.has(place)
      ? css(colours.get(place)) : "transparent"));
    this.legend.replaceChildren(make("p", { className: "pt-quiet" },
      `The image that accounts for most of each pixel; stronger colour, greater part (to ${percent(most * scale)})`),
      make("ul", { className: "pt-owners" },
        ...few.map((place) => entry(colours.get(place),
        `${shortName(this.images[place].id)}, ${percent(counts.get(place) / area)} of pixels`, this.images[place])),
        rest.length ? entry(LISTED, `${rest.length} more shown, ${percent(further / area)}`) : null,
        other ? entry(OTHER, `images not shown, ${percent(other / area)}`) : null));
  }

  /** Shares, order and sizes of the images. */
  rank() {
    const { model, region } = this, plain = !region && model.everything;
    const known = this.images.map((image) => model.chosen.length ? model.share(image, region) : 0);
    const shares = new Map(this.images.map((image, i) => [image, known[i]]));
    const by = region ? (a, b) => (shares.get(b) ?? -1) - (shares.get(a) ?? -1) || a.rank - b.rank
      : (a, b) => a.rank - b.rank;
    const order = [...this.images].sort(by), changed = !this.order ||
      order.some((image, i) => image !== this.order[i]);
    const most = Math.max(1e-9, ...known.map((share) => share ?? 0)),
      reach = plain ? Math.max(...this.images.map((i) => i.share + (i.error || 0)), most) : most;
    const marked = plain && this.images.some((image) => image.settled != null);
    this.clearButton.hidden = !region;
    this.heading.textContent = region ? "Resembles most, in the region" : "Resembles most";
    const from = (start, end) => `${start + 1} to ${end + 1}`;
    const rows = region && `: rows ${from(region.y0, region.y1)}, columns ${from(region.x0, region.x1)}.`;
    const hint = marked ? ". ✓ settled, ~ not settled." : ". Larger pictures have larger shares.";
    const rest = rows || (plain ? hint : "; ordered by overall share.");
    this.subtitle.textContent = `Shares of ${this.selectionName()}${rest}`;
    order.forEach((image, place) => {
      const share = shares.get(image), { parts } = image, error = plain && image.error != null ? image.error : null;
      parts.rank.textContent = region ? place + 1 : image.rank;
      parts.share.textContent = percent(share);
      parts.error.textContent = error === null ? "" : `± ${percent(error).slice(0, -2)}`;
      const settled = plain ? image.settled : null;
      parts.mark.textContent = settled ? "✓" : settled === false ? "~" : "";
      parts.mark.title = settled ? "settled" : settled === false
        ? `not settled${image.chance != null ? `: ${Math.round(image.chance * 100)} % sure to belong here` : ""}`
        : "";
      parts.fill.style.width = `${(100 * (share ?? 0)) / reach}%`;
      parts.whisker.hidden = error === null;
      if (error !== null) {
        parts.whisker.style.left = `${(100 * Math.max(0, share - error)) / reach}%`;
        parts.whisker.style.width = `${(100 * (share - Math.max(0, share - error) + error)) / reach}%`;
      }
      image.item.style.setProperty("--pt-size", Math.sqrt(Math.max(0, share ?? 0) / most).toFixed(3));
      image.tile.setAttribute("aria-label",
        `${parts.rank.textContent}. ${image.id}, share ${percent(share)}` +
        `${error === null ? "" : ` plus or minus ${percent(error)}`}` +
        `${settled ? ", settled" : settled === false ? ", not settled" : ""}. Enter opens it beside the query.`);
    });
    if (changed) this.reorder(order);
    const named = order.slice(0, 3).map((image) => `${shortName(image.id)} ${percent(shares.get(image))}`);
    if (region) this.say(`In the region: ${named.join(", ")}`);
    this.rects = null;
    this.redraw("overlay");
  }

  /** New order of the tiles; they glide to their places unless motion is unwelcome. */
  reorder(order) {
    const first = !this.order, still = first || this.drawing || matchMedia("(prefers-reduced-motion: reduce)").matches;
    const before = still ? [] : order.map((image) => image.item.getBoundingClientRect()),
      active = document.activeElement;
    this.order = order;
    this.list.append(...order.map((image) => image.item));
    if (active && active !== document.activeElement && this.list.contains(active)) active.focus();
    before.forEach((old, i) => {
      const now = order[i].item.getBoundingClientRect(), x = old.left - now.left, y = old.top - now.top;
      if (x || y) order[i].item.animate([{ transform: `translate(${x}px, ${y}px)` }, { transform: "none" }],
        { duration: 220, easing: "ease-out" }).finished.then(() => this.relayout(), () => {});
    });
  }

  /** The image that accounts for most of the patch at the cursor. */
  best() {
    const images = this.loaded(), s = this.model.lead();
    if (s < 0 || !this.cursor || !images.length) return this.order[0];
    const { k } = this.model.patchAt(this.model.steps[s], this.cursor.y, this.cursor.x);
    const whole = ({ grids }) => grids[s].data[k] * grids[s].scale;
    return images.reduce((a, b) => (whole(b) > whole(a) ? b : a));
  }

  measure() {
    if (!this.rects) {
      this.rects = { query: this.query.getBoundingClientRect(),
        tiles: new Map(this.images.map((image) => [image, image.holder.getBoundingClientRect()])) };
    }
    return this.rects;
  }

  /** Region, patch, partners and lines, on one canvas as large as the window. */
  draw() {
    this.root.classList.toggle("pt-pointing",
      Boolean(this.cursor && !this.focus));  // patches are seen without the map
    const { overlay, model, region, cursor } = this, ratio = devicePixelRatio || 1,
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
    const images = this.loaded(), s = cursor && images.length ? model.lead() : -1;
    if (s < 0) return this.describe(null);
    const step = model.steps[s], patch = model.patchAt(step, cursor.y, cursor.x);
    const from = within(query, model.box(step, patch.r, patch.c), model.height, model.width);
    const pairs = images.map((image) => {
      const { place, part } = image.partners[s], grid = image.grids[s], partner = place[patch.k];
      const row = Math.floor(partner / step.columns), column = partner % step.columns;
      return { image, row, column, whole: grid.data[patch.k] * grid.scale, part: part.data[patch.k] * part.scale,
        to: within(tiles.get(image), model.box(step, row, column), model.height, model.width) };
    }).sort((a, b) => b.whole - a.whole);
    const most = pairs[0].whole || 1, shown = this.focus && pairs.find((pair) => pair.image === this.focus);
    for (const { image, to, whole } of pairs) this.drawPartner(context, tiles.get(image), to, whole, whole / most);
    this.drawLines(context, from, pairs.filter((pair, i) => pair === shown ||
      (!shown && i < MOST_LINES && pair.whole > 0.03 * most && pair.to.y > 0 && pair.to.y < h)), most);
    outline(context, from, "#fff", 2.5);
    return this.describe({ s, step, patch, pair: shown || pairs[0] });
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

  /** The text and the two patches beside the query. */
  describe(found) {
    this.insetRow.hidden = !found;
    if (!found) {
      const key = this.region ? "region" : "hint";
      if (this.described === key) return;
      this.described = key;
      this.panelText.replaceChildren(make("p", { className: "pt-quiet" },
        this.region ? "Drag again for another region. Escape clears it."
        : "Move over the picture to see which patches are most like it, or drag to select a region. Keys: press ?"));
      return;
    }
    const { s, step, patch, pair } = found, { image, whole, part } = pair, model = this.model;
    const key = [s, patch.k, image.index, Boolean(image.values)].join();
    if (this.described === key) return;
    this.described = key;
    const place = levelName(model.levels.findIndex((level) => level.place === step.level), model.levels.length);
    const line = `${percent(whole)} of this patch, ${percent(part)} by its best patch alone`;
    const pooled = step.pool > 1 ? `, pooled ${step.pool} × ${step.pool}` : "";
    this.panelText.replaceChildren(make("p", {}, make("strong", {}, shortName(image.id)), " accounts for ", line,
      "."),
      make("p", { className: "pt-quiet" },
        `Row ${patch.r + 1}, column ${patch.c + 1}; its row ${pair.row + 1}, column ${pair.column + 1}. ` +
        `${step.extent} × ${step.extent} pixels${pooled}, t = ${step.t}${place ? `, ${place}` : ""}.`));
    this.say(`Row ${patch.r + 1}, column ${patch.c + 1}: ${shortName(image.id)} accounts for ${line}`);
    const own = this.pixelsNow(this.view.query), theirs = this.pixelsNow(image);
    this.described = own && theirs ? key : null;
    if (own && theirs) this.drawInsets(model.compared(own, s, patch.r, patch.c, true),
      model.compared(theirs, s, pair.row, pair.column, false));
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

  /** For screen readers, not more often than one can listen. */
  say(words) {
    clearTimeout(this.speaking);
    this.speaking = setTimeout(() => { this.live.textContent = words; }, 250);
  }

  destroy() {
    this.gone.abort();
    this.watch.disconnect();
    clearTimeout(this.speaking);
    clearTimeout(this.following);
    cancelAnimationFrame(this.waiting);
    this.root.remove();
  }
}

// ---- mounting -------------------------------------------------------------------------------------------------

/** Shows the view in the element, in place of what it held. Option facts: with a title and the facts of the view. */
function mount(element, view, options = {}) {
  if (view.patchtrace !== "view" ||
    view.version !== 1) throw new Error("This is not a view that this viewer can show.");
  const face = new Interface(element, view, options);
  return { element, timings: face.timings, ready: () =>
    face.images.every((image) => image.maps || image.failed || !image.evidence), destroy: () => face.destroy() };
}

/** A report carries its view in the page; its table and pictures fold away, and come back for the printer. */
function mountReport() {
  const data = document.getElementById("view"), element = document.getElementById("viewer"),
    fixed = document.getElementById("static");
  if (!data || !element) return;
  Viewer.report = mount(element, JSON.parse(data.textContent), { facts: false });
  if (!fixed) return;
  fixed.open = false;
  const all = [...document.querySelectorAll("details")], before = new Map();
  addEventListener("beforeprint", () => all.forEach((part) => { before.set(part, part.open); part.open = true; }));
  addEventListener("afterprint", () => all.forEach((part) => { part.open = before.get(part); }));
}

document.addEventListener("DOMContentLoaded", mountReport);
return { mount };
