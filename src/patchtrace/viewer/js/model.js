/* Arrays, maps over pixels, and the numbers of a view. */

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
    image.crops = evidence.crops;  // of a shape of its own
    image.heats = evidence.heat.map(unpack);
    image.partners = evidence.partners.map((pair) => ({ place: unpack(pair.place).data, part: unpack(pair.part),
      crop: pair.crop && unpack(pair.crop).data }));
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

  /** Which pixels of the training image do the explaining: 1 where one does as much as a pixel of the query asks. */
  heatOf(image) {
    const out = new Float32Array(image.height * image.width);
    const even = out.length / (total(this.chosen.map((s) => this.steps[s].whole)) || 1);
    for (const s of this.chosen) {
      const { data, scale } = image.heats[s];
      for (let i = 0; i < out.length; i++) out[i] += data[i] * scale * even;
    }
    return out;
  }

  /** The largest part of a pixel of the query that an image accounts for. */
  mostOf(image) {
    return this.parts([image]).reduce((a, b) => Math.max(a, b), 0);
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

  /** Of latents, the query under the noise of that step as the decoder sees it; else nothing. */
  noisy() {
    const step = this.steps[this.lead()];
    return step && this.view.levels[step.level].picture;
  }

  /** The patch whose middle is the pixel, as {r, c, k}. */
  patchAt(step, y, x) {
    const middle = step.pad - ((step.extent - 1) >> 1);
    const r = Math.min(step.rows - 1, Math.max(0, y + middle));
    const c = Math.min(step.columns - 1, Math.max(0, x + middle));
    return { r, c, k: r * step.columns + c };
  }

  /** The visible pixels of a patch, of the query or of an image of this height and width. */
  box(step, r, c, { height, width } = this) {
    const y0 = Math.max(0, r - step.pad), x0 = Math.max(0, c - step.pad);
    const y1 = Math.min(height, r - step.pad + step.extent);
    const x1 = Math.min(width, c - step.pad + step.extent);
    return { y0, x0, y1, x1 };
  }

  /** The best partner of query patch k in an image: {row, column} in the crop that was compared, box in the image. */
  partner(s, image, k) {
    const step = this.steps[s], { place, crop } = image.partners[s], columns = step.columns + image.width - this.width;
    const row = Math.floor(place[k] / columns), column = place[k] % columns;
    const box = this.box(step, row, column, image), from = crop && (image.crops ? image.crops[s] : step.crops)[crop[k]];
    if (!from) return { row, column, box };
    const [x0, x1] = from.mirrored ? [image.width - box.x1, image.width - box.x0] : [box.x0, box.x1];
    return { row, column, crop: from, box: { y0: from.down * (from.top + box.y0), y1: from.down * (from.top + box.y1),
      x0: from.across * (from.left + x0), x1: from.across * (from.left + x1) } };
  }

  noise(level, name) {
    const key = name + level;
    if (!this.noises.has(key)) this.noises.set(key, unpack(this.view.levels[level][name]));
    return this.noises.get(key);
  }

  /** A patch as compared: {side, values (3, side, side)}, NaN outside the picture. Only the query is noised. */
  compared(pixels, s, r, c, { height, width, noised }) {
    const step = this.steps[s], { pad, pool } = step, { signal } = this.view.levels[step.level];
    const side = Math.floor(step.extent / pool), area = height * width;
    const values = new Float32Array(3 * side * side), counts = new Float32Array(side * side);
    step.sign ||= unpack(step.signs).data;
    step.turn ||= unpack(step.is_turned).data;
    const k = r * step.columns + c, turned = step.turn[k];
    const noise = noised && this.noise(step.level, turned ? "turned" : "noise");
    const top = turned ? r : step.noise_rows[r], left = turned ? c : step.noise_columns[c];
    for (let dy = 0; dy < side * pool; dy++) {
      for (let dx = 0; dx < side * pool; dx++) {
        const y = r - pad + dy, x = c - pad + dx;
        if (y < 0 || x < 0 || y >= height || x >= width) continue;
        const cell = Math.floor(dy / pool) * side + Math.floor(dx / pool);
        const ny = top - pad + dy, nx = left - pad + dx;
        const inside = noised && ny >= 0 && nx >= 0 && ny < height && nx < width;
        counts[cell]++;
        for (let ch = 0; ch < 3; ch++) {
          let value = signal * pixels[ch * area + y * width + x];
          if (inside) {
            const from = Math.min(ch, noise.shape[0] - 1) * area + ny * width + nx;
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
