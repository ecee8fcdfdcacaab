/* Colours, words and small helpers. */

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

// ---- small helpers ------------------------------------------------------------------------------------------

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
