/* Pictures of an image that were compared: mirrored, or a part of it enlarged. */

/** In words, where it is not the image as it is. */
function viewed(crop) {
  return !crop || !crop.view ? "" : crop.mirrored ? " of the mirrored image"
    : ` of the image enlarged ${Number(crop.view.split(":")[1])} times`;
}

/** Cubic interpolation between pixels along one side, as the comparison has it: four [pixel, weight] for each. */
function taps(side, start, scale) {
  return Array.from({ length: side }, (_, i) => {
    const at = (start + i + 0.5) * scale - 0.5, first = Math.floor(at) - 1;
    return [0, 1, 2, 3].map((tap) => {
      const d = Math.abs(at - first - tap);
      const weight = d <= 1 ? (1.5 * d - 2.5) * d * d + 1 : ((-0.5 * d + 2.5) * d - 4) * d + 2;
      return [Math.min(side - 1, Math.max(0, first + tap)), weight];
    });
  });
}

/** The pixels (3, height, width) of a crop of an image, from those of the image. */
function seen(pixels, crop, height, width) {
  if (!crop || !crop.view) return pixels;
  const out = new Float32Array(pixels.length);
  const down = taps(height, crop.top, crop.down), across = taps(width, crop.left, crop.across);
  for (let ch = 0, i = 0; ch < 3; ch++) {
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++, i++) {
        if (crop.mirrored) {
          out[i] = pixels[(ch * height + y) * width + width - 1 - x];
          continue;
        }
        for (const [row, rise] of down[y]) {
          for (const [column, run] of across[x]) out[i] += rise * run * pixels[(ch * height + row) * width + column];
        }
      }
    }
  }
  return out;
}
