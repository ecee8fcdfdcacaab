/* The viewer of one query: Viewer.mount(element, view). Plain script, no dependencies; see viewer/data.py for the view.
   Order of this file: arrays, maps, colours, small helpers, the pair view, the viewer, mounting. */
"use strict";

globalThis.Viewer = (() => {
  // ---- arrays and maps ------------------------------------------------------------------------------------------

  const TYPES = { u1: Uint8Array, u2: Uint16Array, i1: Int8Array };

  /** A packed array as {data, scale, shape}; value = data * scale. */
  function unpack(array) {
    const text = atob(array.data);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return { data: new TYPES[array.dtype](bytes.buffer), scale: array.scale, shape: array.shape };
  }

  /** Each patch's weight * grid, evenly over its visible pixels (grid null: 1 everywhere). Corners first, then sums. */
  function spread(grid, step, height, width) {
    const { rows, columns, pad, extent, weight } = step;
    const across = width + 1;
    const corners = new Float64Array((height + 1) * across);
    for (let r = 0, k = 0; r < rows; r++) {
      const y0 = Math.max(0, r - pad), y1 = Math.min(height, r - pad + extent);
      for (let c = 0; c < columns; c++, k++) {
        const x0 = Math.max(0, c - pad), x1 = Math.min(width, c - pad + extent);
        const value = (weight * (grid ? grid.data[k] * grid.scale : 1)) / ((y1 - y0) * (x1 - x0));
        corners[y0 * across + x0] += value;
        corners[y0 * across + x1] -= value;
        corners[y1 * across + x0] -= value;
        corners[y1 * across + x1] += value;
      }
    }
    const map = new Float32Array(height * width);
    const above = new Float64Array(across);
    for (let y = 0; y < height; y++) {
      for (let x = 0, run = 0; x < width; x++) {
        run += corners[y * across + x];
        above[x] += run;
        map[y * width + x] = Math.max(0, above[x]);
      }
    }
    return map;
  }

  const total = (values) => values.reduce((sum, value) => sum + value, 0);

  /** The numbers of a view: decoded once, asked often. */
  class Model {
    constructor(view) {
      this.view = view;
      this.height = view.query.height;
      this.width = view.query.width;
      this.steps = (view.steps || []).map((step) => ({ ...step }));  // they get fields of their own
      this.levels = (view.levels || []).map((level, place) => ({ ...level, place })).sort((a, b) => a.t - b.t);
      this.noises = new Map();
      for (const step of this.steps) step.base = spread(null, step, this.height, this.width);
      for (const step of this.steps) step.whole = step.weight * step.rows * step.columns;
      this.select(0, "all");
    }

    /** Levels are counted from 1, finest first; 0 stands for all. */
    select(level, scale) {
      const place = level ? this.levels[level - 1].place : -1;
      this.chosen = [];
      this.steps.forEach((step, s) => {
        const fits = scale === "all" || (scale === "full") === (step.pool === 1);
        if ((place < 0 || step.level === place) && fits) this.chosen.push(s);
      });
      this.everything = this.chosen.length === this.steps.length;
      this.base = this.sum(this.chosen.map((s) => this.steps[s].base));
      this.version = (this.version || 0) + 1;
    }

    sum(maps) {
      const out = new Float32Array(this.height * this.width);
      for (const map of maps) for (let i = 0; i < out.length; i++) out[i] += map[i];
      return out;
    }

    decode(image, evidence) {
      const grids = evidence.grids.map(unpack);
      image.maps = grids.map((grid, s) => spread(grid, this.steps[s], this.height, this.width));
      image.totals = grids.map((grid, s) => this.steps[s].weight * grid.scale * total(grid.data));
      image.grids = grids;
      image.heats = evidence.heat.map(unpack);
      image.partners = evidence.partners.map((pair) => ({ place: unpack(pair.place).data, part: unpack(pair.part) }));
    }

    /** What this image accounts for, in the steps chosen, spread over query pixels. */
    mapOf(image) {
      if (image.mapVersion !== this.version) {
        image.map = this.sum(this.chosen.map((s) => image.maps[s]));
        image.mapVersion = this.version;
      }
      return image.map;
    }

    /** The same as part of each pixel, for one image or several together. */
    parts(images) {
      const map = images.length === 1 ? this.mapOf(images[0]) : this.sum(images.map((image) => this.mapOf(image)));
      return map.map((value, i) => (this.base[i] ? value / this.base[i] : 0));
    }

    /** Which pixels of the training image do the explaining. */
    heatOf(image) {
      const out = new Float32Array(this.height * this.width);
      for (const s of this.chosen) {
        const { data, scale } = image.heats[s];
        for (let i = 0; i < out.length; i++) out[i] += data[i] * scale;
      }
      return out;
    }

    /** The share of the image in the region, or in the whole picture, within the steps chosen. */
    share(image, region) {
      if (!region) {
        if (this.everything) return image.share;
        if (!image.totals) return null;
        return total(this.chosen.map((s) => image.totals[s])) / total(this.chosen.map((s) => this.steps[s].whole));
      }
      if (!image.maps) return null;
      const map = this.mapOf(image);
      let own = 0, all = 0;
      for (let y = region.y0; y <= region.y1; y++) {
        for (let i = y * this.width + region.x0; i <= y * this.width + region.x1; i++) {
          own += map[i];
          all += this.base[i];
        }
      }
      return all ? own / all : 0;
    }

    /** The step whose patches are shown: the finest chosen, so that patches keep their size all over the picture. */
    lead() {
      const order = (s) => this.steps[s].t * 1000 + this.steps[s].pool;
      return this.chosen.reduce((best, s) => (best < 0 || order(s) < order(best) ? s : best), -1);
    }

    /** The patch whose middle is the pixel, as {r, c, k}. */
    patchAt(step, y, x) {
      const middle = step.pad - ((step.extent - 1) >> 1);
      const r = Math.min(step.rows - 1, Math.max(0, y + middle));
      const c = Math.min(step.columns - 1, Math.max(0, x + middle));
      return { r, c, k: r * step.columns + c };
    }

    /** The visible pixels of a patch. */
    box(step, r, c) {
      const y0 = Math.max(0, r - step.pad), x0 = Math.max(0, c - step.pad);
      const y1 = Math.min(this.height, r - step.pad + step.extent);
      const x1 = Math.min(this.width, c - step.pad + step.extent);
      return { y0, x0, y1, x1 };
    }

    noise(level, name) {
      const key = name + level;
      if (!this.noises.has(key)) this.noises.set(key, unpack(this.view.levels[level][name]));
      return this.noises.get(key);
    }

    /** A patch as compared: {side, values (3, side, side)}, NaN outside the picture. Only the query is noised. */
    compared(pixels, s, r, c, noised) {
      const step = this.steps[s], { pad, pool } = step, { signal } = this.view.levels[step.level];
      const side = Math.floor(step.extent / pool), area = this.height * this.width;
      const values = new Float32Array(3 * side * side), counts = new Float32Array(side * side);
      step.sign ||= unpack(step.signs).data;
      step.turn ||= unpack(step.is_turned).data;
      const k = r * step.columns + c, turned = step.turn[k];
      const noise = noised && this.noise(step.level, turned ? "turned" : "noise");
      const top = turned ? r : step.noise_rows[r], left = turned ? c : step.noise_columns[c];
      for (let dy = 0; dy < side * pool; dy++) {
        for (let dx = 0; dx < side * pool; dx++) {
          const y = r - pad + dy, x = c - pad + dx;
          if (y < 0 || x < 0 || y >= this.height || x >= this.width) continue;
          const cell = Math.floor(dy / pool) * side + Math.floor(dx / pool);
          const ny = top - pad + dy, nx = left - pad + dx;
          const inside = noised && ny >= 0 && nx >= 0 && ny < this.height && nx < this.width;
          counts[cell]++;
          for (let ch = 0; ch < 3; ch++) {
            let value = signal * pixels[ch * area + y * this.width + x];
            if (inside) {
              const from = Math.min(ch, noise.shape[0] - 1) * area + ny * this.width + nx;
              value += step.sign[k] * noise.data[from] * noise.scale;
            }
            values[ch * side * side + cell] += value;
          }
        }
      }
      for (let i = 0; i < values.length; i++) values[i] /= counts[i % (side * side)] || NaN;
      return { side, values };
    }
  }

  // ---- colours and words ----------------------------------------------------------------------------------------

  const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const SOURCES = [[0, 114, 178], [230, 159, 0], [0, 158, 115], [204, 121, 167], [213, 94, 0], [86, 180, 233],
    [240, 228, 66]];
  const LISTED = [126, 132, 140], OTHER = [190, 194, 199], ACCENT = "#ff9d1e";

  function viridis(value) {
    const place = Math.min(0.9999, Math.max(0, value)) * 4, i = Math.floor(place);
    return VIRIDIS[i].map((low, ch) => low + (VIRIDIS[i + 1][ch] - low) * (place - i));
  }

  function paint(canvas, height, width, colour) {
    canvas.width = width;
    canvas.height = height;
    const context = canvas.getContext("2d"), picture = context.createImageData(width, height);
    for (let i = 0; i < height * width; i++) picture.data.set(colour(i), i * 4);
    context.putImageData(picture, 0, 0);
  }

  /** A heat map to lie over a picture in greys, so that hues belong to the map; stronger where there is more. */
  function paintHeat(canvas, height, width, map) {
    const most = map.reduce((a, b) => Math.max(a, b), 0);
    paint(canvas, height, width, (i) => {
      const value = most ? map[i] / most : 0;
      return [...viridis(value), 255 * (0.5 + 0.28 * value)];
    });
    return most;
  }

  function percent(value) {
    if (value === null || value === undefined) return "…";
    const v = value * 100;
    return `${v === 0 ? "0" : v < 0.01 ? "< 0.01" : v < 1 ? v.toFixed(2) : v < 99.95 ? v.toFixed(1) : "100"}\u00a0%`;
  }

  const plural = (n, one, many) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
  const shortName = (id) => String(id).split(/[\\/]/).pop() || String(id);

  function levelName(place, count) {
    if (count < 2) return "";
    return ["fine detail", "texture", "shapes", "composition"][Math.round((3 * place) / (count - 1))];
  }

  const KEYS = [
    ["Tab", "to the picture, the images, the settings"],
    ["Arrow keys", "on the picture: move the patch; on the images: next image"],
    ["Shift + arrow keys, or drag", "on the picture: select a region; the ranking follows"],
    ["Click", "on the picture: keep this patch"],
    ["Enter", "open an image beside the query (from the picture: the best for this patch)"],
    ["Escape", "clear the region and the patch; close a window"],
    ["[ and ]", "finer or coarser noise level"],
    ["S", "next scale"],
    ["H", "heat map on or off"],
    ["M", "mosaic on or off"],
    ["P", "original picture, or the pixels as compared"],
    ["D", "dark or light"],
    ["?", "this list"],
  ];
  const PAIR_KEYS = [
    ["1, 2, 3", "side by side, overlay, difference"],
    ["X", "swap the two"],
    ["+ and −, or wheel", "zoom both; 0 for the whole picture"],
    ["Arrow keys, or drag", "move about when zoomed"],
    ["N and B", "next image, and back"],
  ];

  // ---- small helpers --------------------------------------------------------------------------------------------

  /** An element. Text always goes in as text, so an id may contain anything. */
  function make(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name in element && name !== "list") element[name] = value;
      else if (value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  function makeSvg(tag, attributes, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  async function loadPicture(source) {
    const picture = new Image();
    picture.src = source;
    await picture.decode();
    return picture;
  }

  /** Pixel values in [-1, 1] as (3, height, width), from the PNG of what was compared. */
  async function loadPixels(source, height, width) {
    const canvas = make("canvas", { width, height });
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(await loadPicture(source), 0, 0, width, height);
    const { data } = context.getImageData(0, 0, width, height);
    const area = height * width, pixels = new Float32Array(3 * area);
    for (let i = 0; i < area; i++) for (let ch = 0; ch < 3; ch++) pixels[ch * area + i] = data[i * 4 + ch] / 127.5 - 1;
    return pixels;
  }

  /** The picture without its colours, to lie under a heat map. */
  function greyed(picture) {
    const canvas = make("canvas", { width: picture.naturalWidth, height: picture.naturalHeight }),
      context = canvas.getContext("2d");
    context.drawImage(picture, 0, 0);
    context.globalCompositeOperation = "saturation";
    context.fillStyle = "#888";
    context.fillRect(0, 0, canvas.width, canvas.height);
    return canvas;
  }

  function keyTable(rows) {
    return make("table", { className: "pt-keys" }, make("tbody", {}, ...rows.map(([key, meaning]) =>
      make("tr", {}, make("th", { scope: "row" }, key), make("td", {}, meaning)))));
  }

  function legend(label, low, high) {
    const canvas = make("canvas", { className: "pt-ramp", width: 64, height: 1, role: "presentation" });
    paint(canvas, 1, 64, (i) => [...viridis(i / 63), 255]);
    return make("div", { className: "pt-legend" }, make("span", {}, label), make("span", { className: "pt-num" }, low),
      canvas,
      make("span", { className: "pt-num" }, high));
  }

  function toggle(label, key, pressed, act) {
    const button = make("button", { type: "button", className: "pt-toggle", title: `${label} (${key})` }, label);
    button.setAttribute("aria-pressed", pressed);
    button.addEventListener("click", act);
    return button;
  }

  function outline(context, rect, colour, thick) {
    for (const [style, width] of [["rgba(0,0,0,.65)", thick + 2], [colour, thick]]) {
      context.strokeStyle = style;
      context.lineWidth = width;
      context.strokeRect(rect.x, rect.y, rect.w, rect.h);
    }
  }

  /** Where a box of pixels lies within a rectangle on the screen. */
  function within(rect, box, height, width) {
    const sx = rect.width / width, sy = rect.height / height;
    return { x: rect.left + box.x0 * sx, y: rect.top + box.y0 * sy, w: (box.x1 - box.x0) * sx,
      h: (box.y1 - box.y0) * sy };
  }

  // ---- the pair view --------------------------------------------------------------------------------------------

  /** The query and one image, large: side by side, overlaid, or their difference, with one zoom for both. */
  class Pair {
    constructor(viewer) {
      this.viewer = viewer;
      this.model = viewer.model;
      this.reset();
      this.mode = "side";
      this.mix = 0.5;
      this.heat = true;
      this.swapped = false;
      this.title = make("h2", { id: viewer.name("pair") });
      this.text = make("p", { className: "pt-quiet", "aria-live": "polite" });
      this.modes = [["side", "Side by side", "1"], ["overlay", "Overlay", "2"], ["difference", "Difference", "3"]].map(
        ([mode, label, key]) => [mode, toggle(label, key, false, () => this.set({ mode }))]);
      this.heatButton = toggle("Heat", "H", true, () => this.set({ heat: !this.heat }));
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
      this.panes.forEach(({ canvas }) => { canvas.style.aspectRatio = `${this.model.width} / ${this.model.height}`; });
      const bar = make("div", { className: "pt-bar" },
        make("div", { className: "pt-group", role: "group", "aria-label": "How to compare" },
          ...this.modes.map(([, b]) => b)),
        this.heatButton, swap, make("div", { className: "pt-group", role: "group", "aria-label": "Zoom" }, ...zooms),
          this.mixing);
      this.dialog = make("dialog", { className: "pt-dialog pt-pair" },
        make("div", { className: "pt-top" }, this.title, close), bar,
        make("div", { className: "pt-panes" }, ...this.panes.map((pane) => pane.figure)), this.scale, this.text);
      this.dialog.setAttribute("aria-labelledby", this.title.id);
      this.dialog.addEventListener("keydown", (event) => this.key(event));
      this.dialog.addEventListener("close", () => viewer.closedPair(this.image));
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
      this.viewer.need([image]);
      this.load(image);
    }

    async load(image) {
      const { query } = this.viewer.view;
      try {
        const loaded = await Promise.all([loadPicture(query.frame), loadPicture(image.frame)]);
        const pixels = await Promise.all([this.viewer.pixels(query), this.viewer.pixels(image)]);
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
        this.maps.heat = [this.model.parts([image]), this.model.heatOf(image)].map((map) => {
          const canvas = make("canvas");
          return { canvas, most: paintHeat(canvas, height, width, map) };
        });
      }
      const canvas = make("canvas"), difference = new Float32Array(area);
      for (let i = 0; i < 3 * area; i++) difference[i % area] += Math.abs(pixels[0][i] - pixels[1][i]) / 6;
      paint(canvas, height, width, (i) => [...viridis(difference[i]), 255]);
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
        n: () => this.open(this.viewer.neighbour(this.image, 1)),
        b: () => this.open(this.viewer.neighbour(this.image, -1)),
        "?": () => this.viewer.help.showModal(),
      };
      const action = actions[event.key.toLowerCase()];
      if (action) action();
      else if (arrows[event.key] && event.target !== this.slider) this.move(...arrows[event.key]);
      else return;
      event.preventDefault();
      event.stopPropagation();
    }

    draw() {
      const { image, mode, viewer, maps } = this, { query } = viewer.view, both = [query, image];
      this.title.textContent = `${shortName(query.id)} and ${shortName(image.id)}`;
      for (const [name, button] of this.modes) button.setAttribute("aria-pressed", name === mode);
      this.heatButton.setAttribute("aria-pressed", this.heat);
      this.heatButton.disabled = mode === "difference";
      this.mixing.hidden = mode !== "overlay";
      this.dialog.dataset.mode = mode;
      this.panes[1].figure.hidden = mode !== "side";
      const share = percent(viewer.model.share(image, viewer.region));
      const words = `${shortName(image.id)} accounts for ${share} of ${viewer.selectionName()}.`;
      const waiting = image.failed ? " Its maps could not be loaded." : image.maps ? "" : " Loading its maps …";
      this.text.textContent = words + waiting;
      if (!maps || maps.image !== image) return;
      const order = this.swapped ? [1, 0] : [0, 1];
      order.forEach((number, end) => { this.ends[end].textContent = number ? "Image" : "Query"; });
      const heat = this.heat && maps.heat;
      this.panes.forEach(({ canvas, caption }, pane) => {
        const which = order[pane], rect = canvas.getBoundingClientRect();
        if (!rect.width) return;
        const context = this.frame(canvas, rect);
        const layer = (number, alpha) => {
          context.globalAlpha = alpha;
          this.place(context, rect, (heat ? maps.greys : maps.frames)[number]);
          if (heat) this.place(context, rect, maps.heat[number].canvas);
          context.globalAlpha = 1;
        };
        if (mode === "side") {
          layer(which, 1);
          caption.textContent = which ? `${image.id}: where it does the explaining`
            : `${query.id}: what this image accounts for`;
          canvas.setAttribute("aria-label", caption.textContent);
        } else if (mode === "overlay") {
          layer(order[0], 1);
          layer(order[1], this.mix);
          const [below, above] = order.map((number) => shortName(both[number].id));
          caption.textContent = `${above}, ${Math.round(this.mix * 100)} %, over ${below}`;
        } else {
          this.place(context, rect, maps.difference.canvas);
          const mean = percent(maps.difference.mean);
          caption.textContent = `Difference of the pixels as compared: ${mean} of full range on average`;
        }
        canvas.setAttribute("aria-label", caption.textContent);
        this.mark(context, rect, mode === "side" ? which : 0);
      });
      const top = heat ? percent(maps.heat[0].most) : "";
      this.scale.replaceChildren(mode === "difference" ? legend("Difference", "none", "full range")
        : heat ? legend(`Heat: query up to ${top} of a pixel, image relative to its own strongest pixel`, "none",
          "most") : "");
    }

    frame(canvas, rect) {
      const ratio = devicePixelRatio || 1, context = canvas.getContext("2d");
      canvas.width = Math.round(rect.width * ratio);
      canvas.height = Math.round(rect.height * ratio);
      context.setTransform(canvas.width / rect.width, 0, 0, canvas.height / rect.height, 0, 0);
      return context;
    }

    place(context, { width, height }, picture) {
      const left = width / 2 - this.cx * width * this.zoom, top = height / 2 - this.cy * height * this.zoom;
      context.imageSmoothingEnabled = picture.width > width * this.zoom;
      context.drawImage(picture, left, top, width * this.zoom, height * this.zoom);
    }

    /** The patch under the pointer, and its best partner in the image. */
    mark(context, { width, height }, which) {
      const { model, image, spot } = this;
      if (!spot || !image.maps) return;
      const s = model.lead(), step = model.steps[s];
      if (!step) return;
      const { r, c, k } = model.patchAt(step, Math.floor(spot[1] * model.height), Math.floor(spot[0] * model.width));
      const partner = image.partners[s].place[k];
      const box = which ? model.box(step, Math.floor(partner / step.columns), partner % step.columns)
        : model.box(step, r, c);
      const full = { left: width / 2 - this.cx * width * this.zoom, top: height / 2 - this.cy * height * this.zoom,
        width: width * this.zoom, height: height * this.zoom };
      outline(context, within(full, box, model.height, model.width), which ? ACCENT : "#fff", 2);
    }
  }

  // ---- the viewer -----------------------------------------------------------------------------------------------

  const AT_ONCE = 4, MOST_LINES = 12, BRIEF = 40;
  let mounted = 0;

  class Interface {
    constructor(element, view, { facts = true } = {}) {
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

    // -- what is asked for

    listen() {
      const { signal } = this.gone, { query } = this, on = (target, name, act, options = {}) =>
        target.addEventListener(name, act, { signal, ...options });
      let from = null;
      on(query, "pointerdown", (event) => {
        if (event.button) return;
        from = this.pixelAt(event);
        query.setPointerCapture(event.pointerId);
      });
      on(query, "pointermove", (event) => {
        const at = this.pixelAt(event);
        if (from && (Math.abs(at.y - from.y) > 0 || Math.abs(at.x - from.x) > 0)) this.brush(from, at, true);
        else if (!this.pinned) this.point(at);
      });
      on(query, "pointerup", (event) => {
        const at = this.pixelAt(event);
        if (from && at.y === from.y && at.x === from.x) this.pin(at);
        else if (from) this.redraw("list");
        this.drawing = false;
        from = null;
      });
      on(query, "pointercancel", () => { from = null; this.drawing = false; });
      on(query, "pointerleave", () => { if (!this.pinned && !query.matches(":focus-visible")) this.point(null); });
      on(query, "focus", () => { if (!this.cursor && query.matches(":focus-visible")) this.point(this.centre()); });
      on(query, "blur", () => { if (this.cursor) this.pinned = true; });
      on(query, "keydown", (event) => this.queryKey(event));
      on(this.list, "keydown", (event) => this.listKey(event));
      on(document, "keydown", (event) => this.key(event));
      on(window, "resize", () => this.relayout());
      on(window, "scroll", () => { if (this.cursor || this.region) this.relayout(); },
        { passive: true, capture: true });
      on(this.frame, "load", () => this.relayout());
      this.watch = new ResizeObserver(() => this.relayout());
      this.watch.observe(this.root);
    }

    centre() {
      return { y: this.model.height >> 1, x: this.model.width >> 1 };
    }

    pixelAt(event) {
      const rect = this.query.getBoundingClientRect(), { height, width } = this.model;
      const place = (share, size) => Math.min(size - 1, Math.max(0, Math.floor(share * size)));
      return { y: place((event.clientY - rect.top) / rect.height, height),
        x: place((event.clientX - rect.left) / rect.width, width) };
    }

    point(at) {
      if (at && this.cursor && at.y === this.cursor.y && at.x === this.cursor.x) return;
      this.cursor = at;
      if (at) this.need(this.images);
      this.redraw("overlay");
    }

    pin(at) {
      const same = this.pinned && this.cursor && this.cursor.y === at.y && this.cursor.x === at.x;
      this.pinned = !same;
      this.point(at);
      this.redraw("overlay");
    }

    /** A region; while it is being drawn the list follows a few times a second, for it costs more than a frame. */
    brush(from, to, drawing = false) {
      const [y0, y1] = [from.y, to.y].sort((a, b) => a - b), [x0, x1] = [from.x, to.x].sort((a, b) => a - b);
      Object.assign(this, { region: { y0, y1, x0, x1 }, cursor: null, pinned: false, drawing });
      this.need(this.images);
      this.redraw("overlay");
      if (!drawing) this.redraw("list");
      else this.following ||= setTimeout(() => { this.following = 0; this.redraw("list"); }, 100);
    }

    clear() {
      Object.assign(this, { region: null, cursor: null, pinned: false, anchor: null });
      this.redraw("list", "overlay");
    }

    choose(level, scale) {
      Object.assign(this, { level, scale });
      this.model.select(level, scale);
      this.slider.value = level;
      this.select.value = scale;
      this.need(this.images);
      this.redraw("map", "list", "overlay");
      this.pair.prepare();
    }

    flip(name) {
      if (name === "heat" && this.mosaic) Object.assign(this, { heat: true, mosaic: false });  // they take turns
      else if (name !== "mosaic" || this.view.mosaic) this[name] = !this[name];
      this.redraw("map", "list");
    }

    attend(image) {
      if (this.focus === image) return;
      this.focus = image;
      if (image && image.failed) Object.assign(image, { failed: false, asked: false });  // once more
      if (image) this.need([image]);
      this.redraw("map", "overlay");
    }

    theme() {
      const root = document.documentElement,
        dark = getComputedStyle(root).getPropertyValue("--pt-theme").trim() === "dark";
      root.dataset.theme = dark ? "light" : "dark";
      this.redraw("map", "overlay");
    }

    neighbour(image, by) {
      const order = this.order;
      return order[(order.indexOf(image) + by + order.length) % order.length];
    }

    /** Back in the list, one stands where one has come to with "next". */
    closedPair(image) {
      if (this.list.contains(document.activeElement)) image.tile.focus();
    }

    /** Of the tiles one is in the tab order: the one that had the focus last. */
    rove(image) {
      for (const other of this.images) other.tile.tabIndex = other === image ? 0 : -1;
    }

    queryKey(event) {
      const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (event.key === "Enter" || event.key === " ") {
        const best = this.best();
        if (best) this.pair.open(best);
      } else if (by && !event.ctrlKey && !event.altKey && !event.metaKey) {
        const { height, width } = this.model, start = (event.shiftKey && this.edge) || this.cursor || this.centre();
        const at = { y: Math.min(height - 1, Math.max(0, start.y + by[0])),
          x: Math.min(width - 1, Math.max(0, start.x + by[1])) };
        if (event.shiftKey) {
          this.anchor ||= this.cursor || this.centre();
          this.edge = at;
          this.brush(this.anchor, at);
        } else {
          this.anchor = this.edge = null;
          this.point(at);
        }
      } else return;
      event.preventDefault();
    }

    listKey(event) {
      const image = this.order.find((other) => other.tile === event.target), place = this.order.indexOf(image);
      if (!image || event.ctrlKey || event.altKey || event.metaKey) return;
      const last = this.order.length - 1, middle = ({ item }) => item.offsetLeft + item.offsetWidth / 2;
      const inRow = (step) => {  // the nearest tile of the row above or below
        const bottoms = this.order.map(({ item }) => item.offsetTop + item.offsetHeight), own = bottoms[place];
        const beyond = bottoms.filter((bottom) => (bottom - own) * step > 8);
        const row = step > 0 ? Math.min(...beyond) : Math.max(...beyond);
        const away = (i) => Math.abs(middle(this.order[i]) - middle(image));
        const candidates = bottoms.map((_, i) => i).filter((i) => Math.abs(bottoms[i] - row) <= 8);
        return candidates.length ? candidates.reduce((a, b) => (away(b) < away(a) ? b : a)) : place;
      };
      const moves = { ArrowRight: () => Math.min(last, place + 1), ArrowLeft: () => Math.max(0, place - 1),
        Home: () => 0, End: () => last,
        ArrowDown: () => inRow(1), ArrowUp: () => inRow(-1) };
      if (!moves[event.key]) return;
      event.preventDefault();
      this.order[moves[event.key]()].tile.focus();
    }

    key(event) {
      const typing = event.target.closest &&
        event.target.closest("input:not([type=range]), textarea, select, [contenteditable]");
      if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      const scales = ["all", "full", "pooled"];
      const actions = {
        "?": () => this.help.showModal(),
        escape: () => this.clear(),
        h: () => this.flip("heat"),
        m: () => this.flip("mosaic"),
        p: () => this.flip("asCompared"),
        d: () => this.theme(),
        s: () => { if (!this.select.disabled) this.choose(this.level, scales[(scales.indexOf(this.scale) + 1) % 3]); },
        "[": () => this.choose(Math.max(0, this.level - 1), this.scale),
        "]": () => this.choose(Math.min(this.model.levels.length, this.level + 1), this.scale),
      };
      const action = actions[event.key.toLowerCase()];
      if (!action) return;
      action();
      if (event.key !== "Escape") event.preventDefault();
    }

    // -- evidence and pixels, loaded when first needed

    need(images) {
      for (const image of images) {
        if (image.maps || image.asked || !image.evidence || !this.model.steps.length) continue;
        image.asked = true;
        this.queue.push(image);
      }
      const first = images.length === 1 ? this.queue.indexOf(images[0]) : -1;  // what is looked at goes before the rest
      if (first > 0) this.queue.unshift(...this.queue.splice(first, 1));
      while (this.loading < AT_ONCE && this.queue.length) this.fetch(this.queue.shift());
    }

    async fetch(image) {
      this.loading++;
      try {
        let { evidence } = image;
        if (typeof evidence === "string") {
          const answer = await fetch(evidence, { signal: this.gone.signal });
          if (!answer.ok) throw new Error(answer.statusText);
          evidence = await answer.json();
        } else await new Promise((resolve) => setTimeout(resolve));  // so that the page answers in between
        this.model.decode(image, evidence);
        image.evidence = null;
        if (this.pair.image === image) this.pair.prepare();
      } catch {
        image.failed = true;
      }
      this.loading--;
      if (this.gone.signal.aborted) return;
      this.need([]);
      this.redraw("map", "list", "overlay");
    }

    pixels(entry) {
      if (!this.pictures.has(entry.pixels)) this.pictures.set(entry.pixels,
        loadPixels(entry.pixels, this.model.height, this.model.width));
      return this.pictures.get(entry.pixels);
    }

    /** The same without waiting: null until it is there, then the patch is drawn again. */
    pixelsNow(entry) {
      entry.values ??= null;
      if (!entry.values && !entry.waiting) {
        entry.waiting = true;
        this.pixels(entry).then((values) => { entry.values = values; this.redraw("overlay"); }, () => {});
      }
      return entry.values;
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
})();
