/* Colours, maps and pictures on canvases. PALETTE is put in front by report.py. */

const { heat: HEAT, sources: SOURCES, listed: LISTED, others: OTHERS, accent: ACCENT, common: COMMON } = PALETTE;

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

/** How a heat map shows a part of a whole, on one scale for all maps: 0, a quarter and all are 0, 0.5 and 1. */
const onScale = (part) => Math.sqrt(Math.min(1, Math.max(0, part)));

/** A heat map of parts, from 0 to 1, to lie over a picture in greys; where there is nothing the picture is seen. */
function paintHeat(canvas, height, width, map) {
  paint(canvas, height, width, (i) => {
    const value = onScale(map[i]);
    return [...heatColour(value), 255 * (0.3 + 0.5 * value)];
  });
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

/** The scale of colours with words at its ends, and marks at [value from 0 to 1, word] in between. */
function legend(label, low, high, marks = []) {
  const canvas = make("canvas", { className: "pt-ramp", width: 64, height: 1, role: "presentation" });
  paint(canvas, 1, 64, (i) => [...heatColour(i / 63), 255]);
  const placed = marks.map(([value, word]) => {
    const mark = make("span", { className: "pt-tick pt-num" }, word);
    mark.style.left = `${100 * value}%`;
    return mark;
  });
  return make("div", { className: "pt-legend" }, make("span", {}, label), make("span", { className: "pt-num" }, low),
    make("span", { className: "pt-scale" }, canvas, ...placed), make("span", { className: "pt-num" }, high));
}

/** That of the heat maps. */
const heatLegend = (label) => legend(label, "0 %", "100 %", [[onScale(0.05), "5"], [onScale(0.25), "25"]]);

/** The outline of a polygon whose corners are parts of the sides of a rectangle. */
function outlinePolygon(context, full, polygon) {
  if (!polygon || !polygon.length) return;
  context.beginPath();
  polygon.forEach(([x, y]) => context.lineTo(full.left + x * full.width, full.top + y * full.height));
  context.closePath();
  context.lineJoin = "round";
  for (const [style, width] of [["rgba(0,0,0,.65)", 6], [COMMON, 3]]) {
    context.strokeStyle = style;
    context.lineWidth = width;
    context.stroke();
  }
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
