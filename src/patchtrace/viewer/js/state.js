/* What is chosen and pointed at. No elements here: what draws is notified which parts changed. */

/** From fine to coarse; place counts from 0. */
function levelName(place, count) {
  if (count < 2) return "";
  return ["fine detail", "texture", "shapes", "composition"][Math.round((3 * place) / (count - 1))];
}

class State {
  /** need(images): their evidence will be drawn. changed(...parts): controls, map, list, overlay or pair. */
  constructor(model, images, { need, changed }) {
    Object.assign(this, { model, images, need, changed });
    Object.assign(this, { level: 0, scale: "all", cursor: null, pinned: false, region: null, focus: null });
    Object.assign(this, { chosen: null, over: "nothing" });
    Object.assign(this, { asCompared: false, brushing: false, following: 0, pending: null });
  }

  loaded() {
    return this.images.filter((image) => image.maps);
  }

  /** Whether there is evidence, here or to be loaded. */
  evident() {
    return this.images.some((image) => image.maps || image.evidence);
  }

  centre() {
    return { y: this.model.height >> 1, x: this.model.width >> 1 };
  }

  /** The share of an image in what is selected; null: not known yet. */
  share(image) {
    const { model } = this;
    return model.steps.length && !model.chosen.length ? 0 : model.share(image, this.region);
  }

  levelText() {
    if (!this.level) return "all levels";
    const { levels } = this.model, name = levelName(this.level - 1, levels.length);
    return `t = ${levels[this.level - 1].t}${name ? `, ${name}` : ""}`;
  }

  selectionName() {
    const words = [];
    if (this.level) words.push(`at ${this.levelText()}`);
    if (this.scale !== "all") words.push(`${this.scale} scale only`);
    const where = this.region ? "the region" : "the picture";
    return words.length && this.model.levels.length ? `${where}, ${words.join(", ")}` : where;
  }

  /** The image that accounts for most of the patch at the cursor; null where that is not known. */
  best() {
    const images = this.loaded(), s = this.model.lead();
    if (s < 0 || !this.cursor || !images.length) return null;
    const { k } = this.model.patchAt(this.model.steps[s], this.cursor.y, this.cursor.x);
    const whole = ({ grids }) => grids[s].data[k] * grids[s].scale;
    return images.reduce((a, b) => (whole(b) > whole(a) ? b : a));
  }

  // -- changes

  point(at) {
    if (at && (!this.evident() || (this.cursor && at.y === this.cursor.y && at.x === this.cursor.x))) return;
    this.cursor = at;
    if (at) this.need(this.images);
    this.changed("overlay");
  }

  pin(at) {
    if (!this.evident()) return;
    const same = this.pinned && this.cursor && this.cursor.y === at.y && this.cursor.x === at.x;
    this.pinned = !same;
    this.point(at);
    this.changed("overlay");
  }

  /** A region; while it is being drawn the list follows a few times a second, for it costs more than a frame. */
  brush(from, to, brushing = false) {
    if (!this.evident()) return;
    const [y0, y1] = [from.y, to.y].sort((a, b) => a - b), [x0, x1] = [from.x, to.x].sort((a, b) => a - b);
    Object.assign(this, { region: { y0, y1, x0, x1 }, cursor: null, pinned: false, brushing });
    this.need(this.images);
    this.changed("overlay");
    if (!brushing) this.changed("list");
    else this.following ||= setTimeout(() => { this.following = 0; this.changed("list"); }, 100);
  }

  clear() {
    Object.assign(this, { region: null, cursor: null, pinned: false });
    this.changed("list", "overlay");
  }

  choose(level, scale) {
    if (!this.evident()) return;
    Object.assign(this, { level, scale });
    this.model.select(level, scale);
    this.need(this.images);
    this.changed("controls", "map", "list", "overlay", "pair");
  }

  /** What lies over the query: nothing, heat or mosaic. */
  lay(over) {
    this.over = over;
    if (over === "heat" && this.images.length) this.need([this.heated()]);
    this.changed("controls", "map", "list");
  }

  /** The image whose heat is shown: the one under focus, else the last that was, else the first with something in
   *  common with the query, else the first. */
  heated() {
    const { chosen, focus, images } = this;
    return focus || (images.includes(chosen) ? chosen : images.find(({ verdict }) => verdict?.found) || images[0]);
  }

  showAsCompared(yes) {
    this.asCompared = yes;
    this.changed("controls", "map");
  }

  attend(image) {
    if (this.focus === image) return;
    this.focus = image;
    if (image) this.chosen = image;
    if (image && image.failed) Object.assign(image, { failed: false, asked: false });  // once more
    if (image) this.need([image]);
    this.changed("map", "overlay");
  }

  stop() {
    clearTimeout(this.following);
  }
}
