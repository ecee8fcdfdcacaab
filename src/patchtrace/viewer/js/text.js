/* Words and elements, for the viewer and for the page of the server. */

/** A share with three figures that mean something, as percent of drawing/parts.py writes it, but with a space that
 *  does not break. A share that is not known yet is "…". */
function percent(share) {
  if (share === null || share === undefined) return "…";
  const value = 100 * share;
  if (value === 0) return "0\u00a0%";
  if (value < 0.001) return "<0.001\u00a0%";
  return `${value.toFixed(value >= 10 ? 1 : value >= 1 ? 2 : 3)}\u00a0%`;
}

const plural = (n, one, many) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
/** An id with its folder, without those above. */
const shortName = (id) => String(id).split(/[\\/]/).filter(Boolean).slice(-2).join("/") || String(id);

/** How far the resemblance of an image is above what is usual for it; empty where no null is known. */
const zWords = ({ z, stands_out: out }) => (z == null ? "" : `z\u00a0${z.toFixed(1)}${out ? ", stands out" : ""}`);

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

/** A button that is pressed or not. */
function toggle(label, key, pressed, act) {
  const button = make("button", { type: "button", className: "pt-toggle", title: `${label} (${key})` }, label);
  button.setAttribute("aria-pressed", pressed);
  button.addEventListener("click", act);
  return button;
}

let groups = 0;

/** Buttons of which one is chosen: [[value, label, key], ...]. {element, draw(value)}; act gets the value. */
function choices(label, options, act) {
  const name = `pt-choice-${++groups}`;
  const inputs = options.map(([value]) => make("input", { type: "radio", name, value }));
  inputs.forEach((input) => input.addEventListener("change", () => act(input.value)));
  const element = make("div", { className: "pt-choices", role: "radiogroup", "aria-label": label },
    ...options.map(([, text, key], i) => make("label", { title: `${text} (${key})` }, inputs[i], make("span", {}, text))));
  return { element, inputs, draw: (value) => inputs.forEach((input) => { input.checked = input.value === value; }) };
}
