/* The viewer, put together: what is drawn when, and how it is mounted. */

let mounted = 0;

/** Draws in the next frame what changed since the last, and only that. */
class Frames {
  constructor(draw) {
    Object.assign(this, { draw, dirty: new Set(), waiting: 0, stopped: false });
  }

  ask(...parts) {
    parts.forEach((part) => this.dirty.add(part));
    if (this.waiting || this.stopped) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      const now = new Set(this.dirty);
      this.dirty.clear();
      this.draw(now);
    });
  }

  stop() {
    this.stopped = true;
    cancelAnimationFrame(this.waiting);
  }
}

/** Words for screen readers, not more often than one can listen. */
class Announcer {
  constructor() {
    this.element = make("p", { className: "pt-hidden", role: "status", "aria-live": "polite" });
    this.waiting = 0;
  }

  say(words) {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => { this.element.textContent = words; }, 250);
  }
}

function check(view) {
  if (view.patchtrace !== "view" ||
    view.version !== 1) throw new Error("This is not a view that this viewer can show.");
}

/** Shows the view in the element, in place of what it held. Option facts: with a title and the facts of the view. */
function mount(element, view, { facts: withFacts = true } = {}) {
  check(view);
  const number = ++mounted, id = (part) => `pt-${number}-${part}`, gone = new AbortController(), timings = [];
  const images = view.images.map((image) => ({ ...image })), query = { ...view.query };  // the view stays as it is
  const model = new Model(view), patches = model.steps.length > 0;
  const root = make("div", { className: "patchtrace pt-viewer" });
  const frames = new Frames(draw), changed = (...parts) => frames.ask(...parts);
  const announcer = new Announcer(), say = (words) => announcer.say(words);
  const evidence = new Evidence(model, { signal: gone.signal, loaded: (image) => {
    if (pair.image === image) pair.prepare();
    changed("map", "list", "overlay");
  } });
  const state = new State(model, images, { need: (some) => evidence.need(some), changed });
  state.pending = view.pending;
  let mosaic = view.mosaic ? new Mosaic(view.mosaic, images) : null;
  const help = helpDialog(patches), openHelp = () => help.showModal();
  const switchTheme = () => {
    const page = document.documentElement,
      dark = getComputedStyle(page).getPropertyValue("--pt-theme").trim() === "dark";
    page.dataset.theme = dark ? "light" : "dark";
    changed("map", "overlay");
  };
  const controls = new Controls(model, state, id("level"), { switchTheme, openHelp });
  controls.allow(Boolean(mosaic));
  const picture = new QueryPicture(root, query, model, state, mosaic);
  const panel = new PatchPanel(query, model, state, { say,
    pixels: (entry) => evidence.pixelsNow(entry, () => changed("overlay")),
    picture: (source) => evidence.pictureNow(source, () => changed("overlay")) });
  const overlay = new Overlay(root, picture.element, model, state, panel);
  const relayout = () => {
    picture.relayout();
    overlay.relayout();
    changed("overlay");
  };
  const list = new ImageList(model, state, id("ranking"), { say, moved: relayout, open: (image) => pair.open(image),
    covered: () => pair.dialog.open, released: () => { tell(); changed("list", "map"); } });
  const pair = new Pair(query, state, evidence, id("pair"), { openHelp,
    neighbour: (image, by) => list.neighbour(image, by), closed: (image) => {
      list.returnTo(image);
      list.release();
    } });

  function draw(parts) {
    const start = performance.now();
    if (parts.has("controls")) controls.draw();
    if (parts.has("map")) {
      picture.draw();
      list.drawOwners(state.over === "mosaic" ? mosaic : null);
    }
    if (parts.has("list")) list.draw();
    if (parts.has("overlay") && patches) overlay.draw();
    if (parts.has("pair")) pair.prepare();
    if (parts.size === 1 && parts.has("overlay") && state.cursor) timings.push(performance.now() - start);
  }

  const head = make("div"), foot = make("div", { className: "pt-foot" });

  /** What stands in words above and below the images. */
  function tell() {
    const { summary } = view, open = head.querySelector("details")?.open;
    const note = [view.file_note, view.evidence_note].filter(Boolean).join(" ");
    const shown = (...parts) => parts.filter(Boolean);
    head.replaceChildren(...shown(withFacts ? facts(view) : null,
      make("div", { className: `pt-lead pt-is-${view.headline.tone}` }, ...headline(view, images)),
      note ? make("p", { className: "pt-quiet pt-note" }, note) : null));
    if (open) head.querySelector("details").open = true;
    foot.replaceChildren(...shown(coverage(summary.coverage || []), meaning(patches), smallestShares(view.opponents)));
  }

  /** Shows a newer answer to the same query, in place; false where that is not possible. */
  function update(next) {
    check(next);
    if ((next.steps || []).length !== model.steps.length) return false;
    const before = new Map(images.map((image) => [image.index, image]));
    view = next;
    state.pending = next.pending;
    images.splice(0, images.length, ...next.images.map((image) => Object.assign(before.get(image.index) || {}, image)));
    mosaic = picture.mosaic = next.mosaic ? new Mosaic(next.mosaic, images) : null;
    controls.allow(Boolean(mosaic));
    list.renew();
    if (!list.held()) tell();
    if (pair.dialog.open) evidence.need([pair.image]);
    changed("controls", "map", "overlay", "pair");
    return true;
  }

  tell();
  root.append(...[
    head,
    controls.element,
    make("div", { className: "pt-stage" },
      make("section", { className: "pt-left", "aria-label": "The query" }, picture.element,
        ...(patches ? [picture.legend, picture.note, panel.element] : [])), list.element),
    foot, announcer.element, overlay.canvas, pair.dialog, help,
  ].filter(Boolean));
  element.replaceChildren(root);

  const on = (target, name, act, options = {}) =>
    target.addEventListener(name, act, { signal: gone.signal, ...options });
  if (patches) {
    listenToQuery(picture, state, on, (image) => { if (image || list.order[0]) pair.open(image || list.order[0]); });
  }
  listenToKeys(state, controls, on, { openHelp, switchTheme });
  on(list.list, "keydown", (event) => list.key(event));
  on(window, "resize", relayout);
  on(window, "scroll", () => { if (state.cursor || state.region) relayout(); }, { passive: true, capture: true });
  on(picture.frame, "load", relayout);
  const sizes = new ResizeObserver(relayout);
  sizes.observe(root);

  picture.draw();
  list.draw();
  if (images.every((image) => typeof image.evidence !== "string")) evidence.need(images);
  picture.drawNote();
  const destroy = () => {
    gone.abort();
    sizes.disconnect();
    frames.stop();
    state.stop();
    clearTimeout(announcer.waiting);
    root.remove();
  };
  return { element, timings, destroy, update,
    ready: () => images.every((image) => image.maps || image.failed || !image.evidence) };
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
