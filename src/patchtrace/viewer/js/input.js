/* What pointer and keys ask for. Everything they do, they do by changing the state. */

/** Pointer and keys on the query: point, pin a patch, draw a region. */
function listenToQuery(picture, state, on, openImage) {
  const { element } = picture, { height, width } = state.model;
  let from = null, anchor = null, edge = null;
  on(element, "pointerdown", (event) => {
    if (event.button) return;
    from = picture.pixelAt(event);
    element.setPointerCapture(event.pointerId);
  });
  on(element, "pointermove", (event) => {
    const at = picture.pixelAt(event);
    if (from && (Math.abs(at.y - from.y) > 0 || Math.abs(at.x - from.x) > 0)) state.brush(from, at, true);
    else if (!state.pinned) state.point(at);
  });
  on(element, "pointerup", (event) => {
    const at = picture.pixelAt(event);
    if (from && at.y === from.y && at.x === from.x) state.pin(at);
    else if (from) state.changed("list");
    state.brushing = false;
    from = null;
  });
  on(element, "pointercancel", () => { from = null; state.brushing = false; });
  on(element, "pointerleave", () => {
    if (!state.pinned && !element.matches(":focus-visible")) state.point(null);
  });
  on(element, "focus", () => {
    if (!state.cursor && element.matches(":focus-visible")) state.point(state.centre());
  });
  on(element, "blur", () => { if (state.cursor) state.pinned = true; });
  on(element, "keydown", (event) => {
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Enter" || event.key === " ") openImage(state.best());
    else if (by && !event.ctrlKey && !event.altKey && !event.metaKey) {
      if (!state.region) anchor = edge = null;  // it was cleared
      const start = (event.shiftKey && edge) || state.cursor || state.centre();
      const at = { y: Math.min(height - 1, Math.max(0, start.y + by[0])),
        x: Math.min(width - 1, Math.max(0, start.x + by[1])) };
      if (event.shiftKey) {
        anchor ||= state.cursor || state.centre();
        edge = at;
        state.brush(anchor, at);
      } else {
        anchor = edge = null;
        state.point(at);
      }
    } else return;
    event.preventDefault();
  });
}

/** Keys that work wherever the focus is. */
function listenToKeys(state, controls, on, { openHelp, switchTheme }) {
  const { model } = state, patches = model.steps.length > 0;
  const always = { "?": openHelp, escape: () => state.clear(), d: switchTheme,
    p: () => state.showAsCompared(!state.asCompared) };
  const flip = (over) => state.lay(state.over === over ? "nothing" : over);
  const actions = !patches ? always : {
    ...always,
    h: () => { if (state.evident()) flip("heat"); },
    m: () => { if (!controls.mosaic.disabled) flip("mosaic"); },
    s: () => controls.nextScale(),
    "[": () => state.choose(Math.max(0, state.level - 1), state.scale),
    "]": () => state.choose(Math.min(model.levels.length, state.level + 1), state.scale),
  };
  on(document, "keydown", (event) => {
    const typing = event.target.closest &&
      event.target.closest("input:not([type=range], [type=radio], [type=checkbox]), textarea, select, [contenteditable]");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const action = actions[event.key.toLowerCase()];
    if (!action) return;
    action();
    if (event.key !== "Escape") event.preventDefault();
  });
}
