/* The parts of the page that are made once and do not change. */

const KEYS = [
  ["Tab", "to the picture, the images, the settings"],
  ["Arrow keys", "on the picture: move the patch; on the images: next image"],
  ["Shift + arrow keys, or drag", "on the picture: select a region; the ranking follows"],
  ["Click", "on the picture: keep this patch"],
  ["Enter", "open an image beside the query (from the picture: the best for this patch)"],
  ["Escape", "clear the region and the patch; close a window"],
  ["[ and ]", "finer or coarser noise level"],
  ["S", "next scale"],
  ["H", "heat map of one image: the one last pointed at, or the first"],
  ["M", "mosaic: the image that accounts for most of each pixel"],
  ["P", "original picture, or the pixels as compared"],
  ["D", "dark or light"],
  ["?", "this list"],
];
/** Of these, those that are about patches. */
const PATCH_KEYS = new Set(["Shift + arrow keys, or drag", "Click", "[ and ]", "S", "H", "M"]);
const PAIR_KEYS = [
  ["1, 2, 3", "side by side, overlay, difference"],
  ["X", "swap the two"],
  ["+ and −, or wheel", "zoom both; 0 for the whole picture"],
  ["Arrow keys, or drag", "move about when zoomed"],
  ["N and B", "next image, and back"],
];

function keyTable(rows) {
  return make("table", { className: "pt-keys" }, make("tbody", {}, ...rows.map(([key, meaning]) =>
    make("tr", {}, make("th", { scope: "row" }, key), make("td", {}, meaning)))));
}

function helpDialog(patches) {
  const close = make("button", { type: "button", className: "pt-close" }, "Close");
  const known = (rows) => keyTable(rows.filter(([key]) => patches || !PATCH_KEYS.has(key)));
  const dialog = make("dialog", { className: "pt-dialog pt-help", "aria-label": "Keys" },
    make("div", { className: "pt-top" }, make("h2", {}, "Keys"), close), known(KEYS),
    make("h3", {}, "With an image open"), known(PAIR_KEYS));
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("keydown", (event) => event.stopPropagation());
  return dialog;
}

/** How it was compared, folded away: for whoever checks a result or repeats it. */
function facts({ facts, query }) {
  return make("header", { className: "pt-header" }, make("h1", {}, `What ${shortName(query.id)} resembles`),
    make("details", { className: "pt-more" }, make("summary", {}, "How it was compared"),
      make("dl", { className: "pt-facts" },
        ...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))))));
}

/** The verdict, and what it rests on. */
function headline({ headline }, images) {
  if (!images.length) return [make("p", {}, "There are no images to show.")];
  return [make("h2", {}, headline.title), ...headline.sentences.map((sentence) =>
    make("p", {}, sentence.replaceAll(" %", "\u00a0%")))];
}

function coverage(points) {
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

function meaning(patches) {
  const how = patches
    ? "The picture and the images are compared patch by patch, under noise. A share of 5 % says: of the weight of " +
      "all patches of the picture, 5 % falls on patches of this image, in competition with all others in the " +
      "collection."
    : "A share of 5 % says: of the scores above zero of all images in the collection, together, this image has 5 %.";
  return make("section", {}, make("h3", {}, "What a share means"), make("p", {}, how),
    make("p", {}, "It says how much the picture resembles the image. It does not say that a model was trained on " +
      "it, or why they are alike; and where nothing is alike, the shares still have to go somewhere."));
}

function smallestShares(opponents) {
  if (!opponents || !opponents.length) return null;
  return make("section", {}, make("h3", {}, "For contrast: the smallest shares"),
    make("ul", { className: "pt-opponents" }, ...opponents.map((image) =>
    make("li", {}, make("img", { src: image.frame, alt: `Image ${image.id}`, decoding: "async" }),
      make("span", { className: "pt-num" }, percent(image.share)),
      make("span", { className: "pt-id", title: image.id }, shortName(image.id))))));
}
