/* Colours, maps and pictures on canvases. PALETTE is put in front by report.py. */

const { heat: HEAT, sources: SOURCES, listed: LISTED, others: OTHERS, accent: ACCENT } = PALETTE;

/** The colour of a heat map for a value from 0 to 1. */
function heatColour(value) {
  const last = HEAT.length - 1, place = Math.min(0.9999, Math.max(0, value)) * last, i = Math.floor(place);
  return HEAT[i].map((low, ch) => low + (HEAT[i + 1][ch] - low) * (place - i));
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
    return [...heatColour(value), 255 * (0.5 + 0.28 * value)];
  });
  return most;
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

function legend(label, low, high) {
  const canvas = make("canvas", { className: "pt-ramp", width: 64, height: 1, role: "presentation" });
  paint(canvas, 1, 64, (i) => [...heatColour(i / 63), 255]);
  return make("div", { className: "pt-legend" }, make("span", {}, label), make("span", { className: "pt-num" }, low),
    canvas,
    make("span", { className: "pt-num" }, high));
}

/** A part of a picture; box in pixels of what was compared, height and width of it. */
function paintPart(canvas, picture, box, height, width) {
  const sx = picture.naturalWidth / width, sy = picture.naturalHeight / height;
  canvas.width = canvas.height = 160;
  canvas.getContext("2d").drawImage(picture, box.x0 * sx, box.y0 * sy, (box.x1 - box.x0) * sx, (box.y1 - box.y0) * sy,
    0, 0, canvas.width, canvas.height);
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
