/* The query: its picture, and over it a heat map or the mosaic, with a legend. */

/** For each pixel the image that accounts for most of it, and a colour for each such image. */
class Mosaic {
  constructor(packed, images) {
    this.owner = unpack(packed.owner).data;
    this.part = unpack(packed.part);
    this.counts = new Map();
    for (const place of this.owner) this.counts.set(place, (this.counts.get(place) || 0) + 1);
    this.owners = [...this.counts.keys()].filter((place) => place < images.length)
      .sort((a, b) => this.counts.get(b) - this.counts.get(a));
    this.colours = new Map(this.owners.map((place, i) => [place, SOURCES[i] || LISTED]));
  }

  /** The colour of an image, for styles. */
  css(place) {
    return this.colours.has(place) ? `rgb(${this.colours.get(place).join(" ")})` : "transparent";
  }
}

class QueryPicture {
  /** root gets a class for what lies over the picture. */
  constructor(root, query, model, state, mosaic) {
    Object.assign(this, { root, query, model, state, mosaic });
    this.frame = make("img", { className: "pt-frame", src: query.frame, alt: `The query ${query.id}`,
      draggable: false });
    this.map = make("canvas", { className: "pt-map", role: "presentation" });
    this.note = make("p", { className: "pt-quiet" });
    this.legend = make("div", { className: "pt-legends" });
    this.element = make("div", { className: "pt-query" }, this.frame, this.map);
    this.element.style.aspectRatio = `${query.width} / ${query.height}`;
    if (!model.steps.length) {
      this.element.classList.add("pt-still");
      return;
    }
    Object.assign(this.element, { tabIndex: 0, role: "application" });
    this.element.setAttribute("aria-label",
      `The query ${query.id}, ${query.width} by ${query.height} pixels. Arrow keys move over its patches.`);
  }

  pixelAt(event) {
    const rect = this.element.getBoundingClientRect(), { height, width } = this.model;
    const place = (share, size) => Math.min(size - 1, Math.max(0, Math.floor(share * size)));
    return { y: place((event.clientY - rect.top) / rect.height, height),
      x: place((event.clientX - rect.left) / rect.width, width) };
  }

  /** Enlarged pixels are shown as pixels. */
  relayout() {
    const sharp = this.frame.naturalWidth && this.frame.naturalWidth <= this.element.clientWidth;
    this.frame.classList.toggle("pt-pixels", Boolean(sharp));
  }

  draw() {
    const { state } = this, source = state.asCompared ? this.model.noisy() || this.query.pixels
      : this.query.frame;
    if (this.frame.getAttribute("src") !== source) this.frame.src = source;
    this.drawNote();
    const mosaic = state.over === "mosaic" && this.mosaic, shown = mosaic ? this.drawMosaic() : this.drawHeat();
    this.root.classList.toggle("pt-with-mosaic", Boolean(mosaic));
    this.root.classList.toggle("pt-with-heat", !mosaic && shown);
    this.map.hidden = !shown;
  }

  drawNote() {
    const { model, state } = this, { images } = state, failed = images.filter((image) => image.failed).length;
    const left = images.filter((image) => image.asked && !image.maps).length - failed;
    const empty = model.steps.length && !model.chosen.length;
    const idle = model.steps.length && !state.loaded().length && !left && !failed;
    this.note.textContent = empty ? "Nothing was compared at this level and scale." : left
      ? `Loading maps: ${left} to go`
      : failed ? `${plural(failed, "map", "maps")} could not be loaded.` : idle && state.evident()
        ? "Point at the picture or an image to load the maps." : "";
  }

  /** What one image accounts for: the one under focus, or in that mode also the one that was before. */
  drawHeat() {
    const { model, state } = this, image = state.over === "heat" ? state.heated() : state.focus;
    if (!image || !image.maps || !model.chosen.length) {
      this.legend.replaceChildren();
      return false;
    }
    paintHeat(this.map, model.height, model.width, model.parts([image]));
    this.legend.replaceChildren(heatLegend(`Part of each pixel that ${shortName(image.id)} accounts for`));
    return true;
  }

  drawMosaic() {
    const { height, width } = this.model, { images, focus } = this.state;
    const { owner, part: { data, scale }, counts, owners, colours } = this.mosaic;
    const area = height * width;
    paint(this.map, height, width, (i) => {
      const faded = focus && images[owner[i]] !== focus ? 0.12 : 1;
      return [...(colours.get(owner[i]) || OTHERS), 255 * faded * (0.1 + 0.9 * onScale(data[i] * scale))];
    });
    const entry = (colour, words, image) => {
      const swatch = make("span", { className: "pt-swatch" });
      swatch.style.background = `rgb(${colour.join(" ")})`;
      return make("li", {}, swatch, image ? make("img", { src: image.frame, alt: "" }) : null,
        make("span", {}, words));
    };
    const few = owners.slice(0, SOURCES.length), rest = owners.slice(SOURCES.length), other = counts.get(65535) || 0;
    const further = total(rest.map((place) => counts.get(place)));
    this.legend.replaceChildren(make("p", { className: "pt-quiet" },
      "The image that accounts for most of each pixel; full colour: for all of it. Somebody is first everywhere."),
      make("ul", { className: "pt-owners" },
        ...few.map((place) => entry(colours.get(place),
          `${shortName(images[place].id)}, ${percent(counts.get(place) / area)} of pixels`, images[place])),
        rest.length ? entry(LISTED, `${rest.length} more shown, ${percent(further / area)}`) : null,
        other ? entry(OTHERS, `images not shown, ${percent(other / area)}`) : null));
    return true;
  }
}
