/* The images, in order: tiles that can be pointed at, opened, and walked through by keys. */

class ImageList {
  /** act: open(image) beside the query, moved() when tiles changed place, say(words) to screen readers, covered():
   *  whether a dialog is open over the list, released() when a newer order may be shown. */
  constructor(model, state, id, act) {
    Object.assign(this, { model, state, images: state.images, act, order: null, inside: false, newer: false });
    this.heading = make("h2", { id }, "Resembles most");
    this.subtitle = make("p", { className: "pt-quiet pt-subtitle" });
    this.clearButton = make("button", { type: "button", className: "pt-small", title: "Clear (Escape)",
      hidden: true }, "Clear region");
    this.clearButton.addEventListener("click", () => state.clear());
    this.list = make("ul", { className: "pt-list" }, ...this.images.map((image) => this.buildTile(image)));
    this.list.setAttribute("aria-labelledby", id);
    this.later = make("span", { className: "pt-quiet pt-later" });
    for (const name of ["pointerenter", "pointermove"]) this.list.addEventListener(name, () => { this.inside = true; });
    this.list.addEventListener("pointerleave", () => { this.inside = false; this.release(); });
    this.list.addEventListener("focusout", () => setTimeout(() => this.release()));
    if (this.images.length) this.images[0].tile.tabIndex = 0;
    this.element = make("section", { className: "pt-right", "aria-label": "The images it resembles most" },
      make("div", { className: "pt-heading" }, this.heading, this.later, this.clearButton), this.subtitle, this.list);
  }

  buildTile(image) {
    const parts = {
      picture: make("img", { src: image.frame, alt: `Image ${image.id}`, draggable: false, decoding: "async" }),
      share: make("strong", { className: "pt-num" }), lead: make("span", { className: "pt-error pt-num" }),
      z: make("span", { className: "pt-z pt-num" }), error: make("span", { className: "pt-error pt-num" }),
      mark: make("span", { className: "pt-mark" }), fill: make("span", { className: "pt-fill" }),
        whisker: make("span", { className: "pt-whisker" }),
      rank: make("span", { className: "pt-rank pt-num" }), verdict: make("span", { className: "pt-verdict" }),
    };
    image.holder = make("span", { className: "pt-picture" }, parts.picture);
    image.holder.style.aspectRatio = `${image.width} / ${image.height}`;
    image.tile = make("button", { type: "button", className: "pt-tile", tabIndex: -1, title: image.id }, image.holder,
      parts.verdict,
      make("span", { className: "pt-caption", "aria-hidden": "true" }, parts.rank, parts.share, parts.error,
        parts.mark, parts.lead, parts.z),
      make("span", { className: "pt-measure" }, parts.fill, parts.whisker),
        make("span", { className: "pt-id", "aria-hidden": "true" }, make("bdi", {}, shortName(image.id))));
    image.parts = parts;
    const enter = () => this.state.attend(image), leave = () => this.state.attend(null);
    image.tile.addEventListener("pointerenter", enter);
    image.tile.addEventListener("pointerleave", leave);
    image.tile.addEventListener("focus", () => {
      this.rove(image);
      enter();
    });
    image.tile.addEventListener("blur", leave);
    image.tile.addEventListener("click", () => this.act.open(image));
    parts.picture.addEventListener("load", () => this.act.moved());
    image.item = make("li", { className: "pt-item" }, image.tile);
    this.buildCopies(image);
    return image.item;
  }

  /** The near-duplicates that are folded into an image. */
  buildCopies(image) {
    const { copies = [] } = image, said = ({ verdict }) => (verdict?.found ? `: ${verdict.words}` : "");
    const built = copies.map((copy) => `${copy.id} ${copy.share}${said(copy)}`).join("\n");
    if (image.built === built) return;
    image.built = built;
    const open = image.item.querySelector("[aria-expanded=true]");
    image.item.replaceChildren(image.tile);
    if (copies.length) {
      const rows = make("ul", { className: "pt-copies", hidden: !open }, ...copies.map((copy) =>
        make("li", {}, make("span", { title: copy.id }, shortName(copy.id), said(copy)), " ",
          make("span", { className: "pt-num" }, percent(copy.share)))));
      const text = `+${copies.length} near-duplicate${copies.length > 1 ? "s" : ""}`;
      const fold = make("button", { type: "button", className: "pt-fold", "aria-expanded": String(Boolean(open)) }, text);
      fold.addEventListener("click", () => {
        rows.hidden = !rows.hidden;
        fold.setAttribute("aria-expanded", String(!rows.hidden));
        this.act.moved();
      });
      image.item.append(fold, rows);
    }
  }

  /** Whether somebody is at the list: nothing may move there. */
  busy() {
    return this.inside || this.act.covered() || Boolean(this.list.querySelector(":focus-visible"));
  }

  /** Whether a newer order waits for that to end. */
  held() {
    return this.newer && this.busy();
  }

  /** The images of the state are those of a newer answer. */
  renew() {
    for (const image of this.images) {
      if (!image.item) this.buildTile(image);
      else if (!this.busy()) this.buildCopies(image);
    }
    const waited = this.newer;
    this.newer = true;
    if (this.busy() && !waited) this.act.say("A newer order is ready. It is shown when you leave the list.");
    this.draw();
  }

  release() {
    if (!this.newer || this.busy()) return;
    this.images.forEach((image) => this.buildCopies(image));
    this.draw();
    this.act.released();
  }

  neighbour(image, by) {
    const order = this.order;
    return order[(order.indexOf(image) + by + order.length) % order.length];
  }

  /** Focus on an image, if the list had the focus. */
  returnTo(image) {
    if (this.list.contains(document.activeElement)) image.tile.focus();
  }

  /** Of the tiles one is in the tab order: the one that had the focus last. */
  rove(image) {
    for (const other of this.images) other.tile.tabIndex = other === image ? 0 : -1;
  }

  key(event) {
    const image = this.order.find((other) => other.tile === event.target), place = this.order.indexOf(image);
    if (!image || event.ctrlKey || event.altKey || event.metaKey) return;
    const last = this.order.length - 1, middle = ({ item }) => item.offsetLeft + item.offsetWidth / 2;
    const inRow = (step) => {  // the nearest tile of the row above or below
      const tops = this.order.map(({ item }) => item.offsetTop), own = tops[place];
      const beyond = tops.filter((top) => (top - own) * step > 8);
      const row = step > 0 ? Math.min(...beyond) : Math.max(...beyond);
      const away = (i) => Math.abs(middle(this.order[i]) - middle(image));
      const candidates = tops.map((_, i) => i).filter((i) => Math.abs(tops[i] - row) <= 8);
      return candidates.length ? candidates.reduce((a, b) => (away(b) < away(a) ? b : a)) : place;
    };
    const moves = { ArrowRight: () => Math.min(last, place + 1), ArrowLeft: () => Math.max(0, place - 1),
      Home: () => 0, End: () => last,
      ArrowDown: () => inRow(1), ArrowUp: () => inRow(-1) };
    if (!moves[event.key]) return;
    event.preventDefault();
    this.order[moves[event.key]()].tile.focus();
  }

  /** The colours of the mosaic under the images; null: none. */
  drawOwners(mosaic) {
    this.images.forEach(({ tile }, place) => mosaic ? tile.style.setProperty("--pt-owner", mosaic.css(place))
      : tile.style.removeProperty("--pt-owner"));
  }

  /** Shares and order of the images; of those that are held only the numbers. */
  draw() {
    const { state } = this, { region } = state, plain = !region && this.model.everything, held = this.held();
    this.newer = held;
    const images = held ? this.order : this.images, known = images.map((image) => state.share(image));
    const shares = new Map(images.map((image, i) => [image, known[i]]));
    const by = region ? (a, b) => (shares.get(b) ?? -1) - (shares.get(a) ?? -1) || a.rank - b.rank
      : (a, b) => a.rank - b.rank;
    const order = held ? images : [...images].sort(by), changed = order.length !== this.order?.length ||
      order.some((image, i) => image !== this.order[i]);
    this.later.textContent = held ? "newer order when you leave the list" : state.pending || "";
    const marked = plain && images.some((image) => image.settled === false);
    this.clearButton.hidden = !region;
    this.heading.textContent = region ? "Resembles most, in the region" : "Resembles most";
    const from = (start, end) => `${start + 1} to ${end + 1}`;
    const rows = region && `: rows ${from(region.y0, region.y1)}, columns ${from(region.x0, region.x1)}.`;
    const hint = ". A full bar is the whole picture." + (marked ? " ~ may move with more draws of the noise." : "");
    const rest = rows || (plain ? hint : "; ordered by overall share.");
    this.subtitle.textContent = `Shares of ${state.selectionName()}${rest}`;
    order.forEach((image, place) => {
      const share = shares.get(image), { parts } = image, error = plain && image.error != null ? image.error : null;
      parts.rank.textContent = region ? place + 1 : `${image.rank}${image.tied ? "=" : ""}`;
      image.item.classList.toggle("pt-gone", held && !this.images.includes(image));
      parts.share.textContent = percent(share);
      parts.error.textContent = error === null ? "" : `± ${percent(error).slice(0, -2)}`;
      const open = plain && image.settled === false;  // that the noise is settled says nothing about a resemblance
      parts.mark.textContent = open ? "~" : "";
      parts.mark.title = open ? "its place may move with more draws of the noise" : "";
      // these make a tile taller, and nothing moves under the pointer
      if (!held) parts.lead.textContent = plain && image.lead ? `${image.lead} the second` : "";
      if (!held) parts.z.textContent = plain ? zWords(image) : "";
      if (!held) parts.verdict.textContent = image.verdict?.found ? image.verdict.words : "";
      parts.fill.style.width = `${100 * (share ?? 0)}%`;
      parts.whisker.hidden = error === null;
      if (error !== null) {
        parts.whisker.style.left = `${100 * Math.max(0, share - error)}%`;
        parts.whisker.style.width = `${100 * (Math.min(1, share + error) - Math.max(0, share - error))}%`;
      }
      if (!held) image.item.classList.toggle("pt-found", Boolean(image.verdict?.found));
      image.tile.setAttribute("aria-label",
        `${parts.rank.textContent}. ${image.id}, share ${percent(share)}` +
        `${error === null ? "" : ` plus or minus ${percent(error)}`}` +
        `${open ? ", its place may move" : ""}${image.stands_out ? `, ${zWords(image)}` : ""}` +
        `${image.verdict?.found ? `, ${image.verdict.words}` : ""}. Enter opens it beside the query.`);
    });
    if (changed) this.reorder(order);
    const named = order.slice(0, 3).map((image) => `${shortName(image.id)} ${percent(shares.get(image))}`);
    if (region) this.act.say(`In the region: ${named.join(", ")}`);
    this.act.moved();
  }

  /** New order of the tiles; they glide to their places unless motion is unwelcome. */
  reorder(order) {
    const still = !this.order || this.state.brushing || matchMedia("(prefers-reduced-motion: reduce)").matches;
    const before = still ? [] : order.map(({ item }) => (item.isConnected ? item.getBoundingClientRect() : null)),
      active = document.activeElement;
    for (const { item } of this.order || []) if (!order.some((image) => image.item === item)) item.remove();
    this.order = order;
    this.list.append(...order.map((image) => image.item));
    if (order.length && order.every(({ tile }) => tile.tabIndex < 0)) order[0].tile.tabIndex = 0;
    if (this.state.focus && !order.includes(this.state.focus)) this.state.attend(null);
    if (active && active !== document.activeElement && this.list.contains(active)) active.focus();
    before.forEach((old, i) => {
      const now = order[i].item.getBoundingClientRect(), x = old ? old.left - now.left : 0,
        y = old ? old.top - now.top : 0;
      if (x || y) order[i].item.animate([{ transform: `translate(${x}px, ${y}px)` }, { transform: "none" }],
        { duration: 220, easing: "ease-out" }).finished.then(() => this.act.moved(), () => {});
    });
  }
}
