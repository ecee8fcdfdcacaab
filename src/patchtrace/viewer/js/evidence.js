/* Evidence and pixels of images, loaded when they are first needed. */

const AT_ONCE = 4;

class Evidence {
  /** loaded(image): its maps are there, or could not be loaded. */
  constructor(model, { signal, loaded }) {
    Object.assign(this, { model, signal, loaded, queue: [], loading: 0, pictures: new Map(),
      frames: new Map() });
  }

  need(images) {
    for (const image of images) {
      if (image.maps || image.asked || !image.evidence || !this.model.steps.length) continue;
      image.asked = true;
      this.queue.push(image);
    }
    const first = images.length === 1 ? this.queue.indexOf(images[0]) : -1;  // what is looked at goes before the rest
    if (first > 0) this.queue.unshift(...this.queue.splice(first, 1));
    while (this.loading < AT_ONCE && this.queue.length) this.fetch(this.queue.shift());
  }

  async fetch(image) {
    this.loading++;
    try {
      let { evidence } = image;
      if (typeof evidence === "string") {
        const answer = await fetch(evidence, { signal: this.signal });
        if (!answer.ok) throw new Error(answer.statusText);
        evidence = await answer.json();
      } else await new Promise((resolve) => setTimeout(resolve));  // so that the page answers in between
      this.model.decode(image, evidence);
      image.evidence = null;
    } catch {
      image.failed = true;
    }
    this.loading--;
    if (this.signal.aborted) return;
    this.need([]);
    this.loaded(image);
  }

  /** The pixels of the query or of an image as they were compared. */
  pixels(entry) {
    if (!this.pictures.has(entry.pixels)) this.pictures.set(entry.pixels,
      loadPixels(entry.pixels, entry.height, entry.width));
    return this.pictures.get(entry.pixels);
  }

  /** A picture without waiting: null until it is there, then act is called. */
  pictureNow(source, act) {
    if (!this.frames.has(source)) {
      this.frames.set(source, null);
      loadPicture(source).then((picture) => { this.frames.set(source, picture); act(); }, () => {});
    }
    return this.frames.get(source);
  }

  /** The same without waiting: null until they are there, then act is called. */
  pixelsNow(entry, act) {
    entry.values ??= null;
    if (!entry.values && !entry.waiting) {
      entry.waiting = true;
      this.pixels(entry).then((values) => { entry.values = values; act(); }, () => {});
    }
    return entry.values;
  }
}
