/* What is asked for by pointer and keys, and what has to be loaded for it. */

const AT_ONCE = 4, MOST_LINES = 12, BRIEF = 40;

class Acting extends Parts {
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
}
